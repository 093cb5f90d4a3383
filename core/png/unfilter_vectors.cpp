// Filters on 16 bytes at a time. Average and Paeth depend on the pixel to the left, so throughput is limited by the
// latency from pixel to pixel, 2 and 4 operations here, and by the number of pixels processed together: two if two rows
// have the same filter. The same code compiled for AVX2 gained nothing. benchmarks/png_decode.py measures the gain over
// Level::scalar.
//
// On x86-64 this file is compiled for SSE4.1, on aarch64 it compiles to NEON.
#include "common/vectors.hpp"
#include "png/unfilter_tables.hpp"

namespace headrace::png {
namespace {

// Everything below is in this or another anonymous namespace: an inline function of the standard library, compiled
// here with SSE4.1, could replace its twin in files that must run without it.

constexpr int block_bytes = 16;

// Drops the first `Bytes` bytes and appends zeros.
template <int Bytes>
u8x16 drop(u8x16 v) {
    if constexpr (Bytes == 0) return v;
    return pick_by<consecutive(Bytes)>(v, u8x16{});
}

// Gathers pixels [first, last) of a block from a load that begins with pixel `first`; zeros elsewhere.
template <Gather G, int First, int Last>
u8x16 gather_part(u8x16 raw) {
    static constexpr Pattern from = [] {
        Pattern pattern{};
        for (int i = 0; i < block_bytes; ++i) {
            const int pixel = i / G.lanes;
            const int byte = G.from[i % G.lanes];
            const bool taken = byte != no_byte && pixel >= First && pixel < Last;
            pattern.at[i] = taken ? (pixel - First) * G.step + byte : block_bytes;
        }
        return pattern;
    }();
    return pick_or_zero<from>(raw);
}

template <Gather G>
constexpr int block_pixels = block_bytes / G.lanes;

// Loads one block of pixels, with bytes moved to their lanes.
template <Gather G>
u8x16 gather(const std::uint8_t* raw) {
    constexpr int pixels = block_pixels<G>;
    if constexpr (G.lanes == 1) {
        return load<u8x16>(raw);
    } else if constexpr (pixels * G.step <= block_bytes) {
        return gather_part<G, 0, pixels>(load<u8x16>(raw));
    } else {
        return gather_part<G, 0, pixels / 2>(load<u8x16>(raw)) |
               gather_part<G, pixels / 2, pixels>(load<u8x16>(raw + pixels / 2 * G.step));
    }
}

template <int Count>
struct Vectors {
    u8x16 at[Count];
};

// Concatenates the first `Bytes` bytes of each vector.
template <int Bytes, int Count>
u8x16 join(const Vectors<Count>& parts) {
    if constexpr (Count == 1) {
        return parts.at[0];
    } else {
        Vectors<Count / 2> pairs;
        for (int i = 0; i < Count / 2; ++i) pairs.at[i] = interleave<Bytes>(parts.at[2 * i], parts.at[2 * i + 1]);
        return join<2 * Bytes>(pairs);
    }
}

// Calls body(constant 0), body(constant 1) ... so that each value can be the immediate of a byte shift.
template <int Value>
struct Constant {
    static constexpr int value = Value;
};
template <int Count, int From = 0, class Body>
void repeat(Body&& body) {
    if constexpr (From < Count) {
        body(Constant<From>{});
        repeat<Count, From + 1>(body);
    }
}

template <int Lanes>
struct None {
    u8x16 operator()(u8x16 raw, u8x16) { return raw; }
};

template <int Lanes>
struct Up {
    u8x16 operator()(u8x16 raw, u8x16 above) { return raw + above; }
};

// Prefix sum within the block, plus the last pixel of the previous block.
template <int Lanes>
struct Sub {
    u8x16 left = {};

    u8x16 operator()(u8x16 raw, u8x16) {
        u8x16 sum = raw;
        if constexpr (Lanes <= 1) sum += behind<1>(sum);
        if constexpr (Lanes <= 2) sum += behind<2>(sum);
        sum += behind<4>(sum);
        sum += behind<8>(sum);
        sum += left;
        left = pick_by<repeated(block_bytes - Lanes, Lanes)>(sum, sum);
        return sum;
    }

    // Shifts the vector back by `Bytes` bytes and prepends zeros.
    template <int Bytes>
    static u8x16 behind(u8x16 v) {
        return pick_by<consecutive(block_bytes - Bytes)>(u8x16{}, v);
    }
};

// CPUs round a mean up and PNG rounds it down: floor((a + b) / 2) = ~mean(~a, ~b). The state stays inverted from pixel
// to pixel: since ~(x + ~t) = t - x, a pixel takes two operations.
template <int Lanes>
struct Average {
    u8x16 inverse_left = ~u8x16{};

    u8x16 operator()(u8x16 raw, u8x16 above) {
        constexpr int pixels = block_bytes / Lanes;
        const u8x16 inverse_above = ~above;
        Vectors<pixels> done;
        repeat<pixels>([&](auto k) {
            constexpr int at = k.value * Lanes;
            inverse_left = mean_rounded_up(inverse_left, drop<at>(inverse_above)) - drop<at>(raw);
            done.at[k.value] = inverse_left;
        });
        return ~join<Lanes>(done);
    }
};

// Of the neighbours a, b and c, the nearest to a + b - c is min(a, b) if 3c - (a + b) >= max(a, b), max(a, b) if it is
// <= min(a, b), and c otherwise; ties agree with the standard. Everything except a is known ahead, and the file's byte
// is added to the three candidates while the comparisons run.
template <int Lanes>
struct Paeth {
    u16x8 left = {};
    u8x16 last_above = {};

    u8x16 operator()(u8x16 raw, u8x16 above) {
        const u8x16 corner = pick_by<consecutive(block_bytes - Lanes)>(last_above, above);
        last_above = above;
        const u8x16 low = half_block(low_bytes(raw), low_bytes(above), low_bytes(corner));
        const u8x16 high = half_block(high_bytes(raw), high_bytes(above), high_bytes(corner));
        return bytes_of(as<u16x8>(low), as<u16x8>(high));
    }

    // Processes bytes in 16-bit lanes.
    u8x16 half_block(u16x8 raw, u16x8 above, u16x8 corner) {
        constexpr int pixels = block_bytes / Lanes / 2;
        const u16x8 sum = byte_sum(raw, corner);
        const u16x8 bound = corner + corner + corner - above;
        Vectors<pixels> done;
        repeat<pixels>([&](auto k) {
            constexpr int at = k.value * Lanes * 2;
            left = next(wide_drop<at>(raw), wide_drop<at>(above), wide_drop<at>(sum), wide_drop<at>(bound));
            done.at[k.value] = as<u8x16>(left);
        });
        return join<2 * Lanes>(done);
    }

    u16x8 next(u16x8 raw, u16x8 above, u16x8 raw_plus_corner, u16x8 bound) const {
        const auto a = as<i16x8>(left), b = as<i16x8>(above);
        const i16x8 small = a < b ? a : b;
        const i16x8 large = a > b ? a : b;
        const i16x8 threshold = as<i16x8>(bound) - a;
        const u16x8 other = large > threshold ? raw_plus_corner : byte_sum(as<u16x8>(small), raw);
        return threshold > small ? other : byte_sum(as<u16x8>(large), raw);
    }

    // Adds modulo 256.
    static u16x8 byte_sum(u16x8 a, u16x8 b) { return as<u16x8>(as<u8x16>(a) + as<u8x16>(b)); }

    template <int Bytes>
    static u16x8 wide_drop(u16x8 v) {
        return as<u16x8>(drop<Bytes>(as<u8x16>(v)));
    }
};

template <Gather G, template <int> class Filter>
[[gnu::flatten]] void unfilter_row(const std::uint8_t* raw, const std::uint8_t* above, std::uint8_t* out,
                                   std::size_t pixels) {
    Filter<G.lanes> filter;
    for (std::size_t i = 0; i < pixels; i += block_pixels<G>) {
        store(out, filter(gather<G>(raw), load<u8x16>(above)));
        raw += block_pixels<G> * G.step;
        above += block_bytes;
        out += block_bytes;
    }
}

// Separates interleaved pixels of two rows: the first row to the low half, the second to the high half.
template <int Lanes>
constexpr Pattern pairs_apart = [] {
    Pattern pattern{};
    for (int i = 0; i < block_bytes / 2; ++i) {
        const int from = i / Lanes * 2 * Lanes + i % Lanes;
        pattern.at[i] = from;
        pattern.at[i + block_bytes / 2] = from + Lanes;
    }
    return pattern;
}();

struct RowPair {
    u8x16 upper, lower;
};

// Unfilters two rows as one row of double-width pixels: pixel k of the upper row next to pixel k of the lower row.
template <int Lanes, class Filter>
RowPair unfilter_blocks(Filter& filter, RowPair raw, RowPair above) {
    const u8x16 first = filter(interleave<Lanes>(raw.upper, raw.lower), interleave<Lanes>(above.upper, above.lower));
    const u8x16 second =
        filter(interleave_high<Lanes>(raw.upper, raw.lower), interleave_high<Lanes>(above.upper, above.lower));
    const u8x16 left = pick_by<pairs_apart<Lanes>>(first, first);
    const u8x16 right = pick_by<pairs_apart<Lanes>>(second, second);
    return {interleave<8>(left, right), interleave_high<8>(left, right)};
}

// The lower row runs one block behind the upper row, whose blocks are then its row above. Zeros in place of a missing
// block leave a filter's initial state unchanged.
template <Gather G, template <int> class Filter>
[[gnu::flatten]] void unfilter_pair(RowSpan upper, RowSpan lower, const std::uint8_t* above, std::size_t pixels) {
    constexpr int raw_bytes = block_pixels<G> * G.step;
    const u8x16 zero = {};
    const std::size_t blocks = (pixels + block_pixels<G> - 1) / block_pixels<G>;
    Filter<2 * G.lanes> filter;
    RowPair done{zero, zero};
    for (std::size_t i = 0; i <= blocks; ++i) {
        const bool last = i == blocks;
        const u8x16 upper_raw = last ? zero : gather<G>(upper.raw + i * raw_bytes);
        const u8x16 lower_raw = i == 0 ? zero : gather<G>(lower.raw + (i - 1) * raw_bytes);
        const u8x16 upper_above = last ? zero : load<u8x16>(above + i * block_bytes);
        done = unfilter_blocks<G.lanes>(filter, {upper_raw, lower_raw}, {upper_above, done.upper});
        if (!last) store(upper.out + i * block_bytes, done.upper);
        if (i != 0) store(lower.out + (i - 1) * block_bytes, done.lower);
    }
}

template <Gather G>
struct Filters {
    static constexpr RowFilters table = {
        {unfilter_row<G, None>, unfilter_row<G, Sub>, unfilter_row<G, Up>, unfilter_row<G, Average>,
         unfilter_row<G, Paeth>},
        {nullptr, nullptr, nullptr, unfilter_pair<G, Average>, unfilter_pair<G, Paeth>}};
};

}  // namespace

constinit const UnfilterTable unfilter_vectors = unfilter_table<Filters>();

}  // namespace headrace::png
