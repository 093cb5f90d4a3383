// The filters on 16 bytes at a time. Average and Paeth need the pixel to the left before they can go on, so what
// counts is how many operations lie between one pixel and the next, 2 and 4 here, and how many pixels take that way
// together: two where two rows have the same filter. The same code compiled for AVX2 gained nothing.
// benchmarks/png_decode.py shows the gain over Level::scalar.
#if defined(__x86_64__)

#include <immintrin.h>

#include "png/unfilter_tables.hpp"

namespace headrace::png {
namespace {

// Everything below lives in this namespace or is an intrinsic: an inline function of the standard library, emitted
// here with SSE4.1, could replace its twin in files that must run without it.

constexpr int block_bytes = 16;

__m128i load(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void store(std::uint8_t* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
__m128i inverse(__m128i v) { return _mm_xor_si128(v, _mm_set1_epi8(-1)); }

// Without the first `Bytes` bytes. GCC emits a shift by none as an instruction.
template <int Bytes>
__m128i drop(__m128i v) {
    if constexpr (Bytes == 0) return v;
    return _mm_srli_si128(v, Bytes);
}

struct Shuffle {
    alignas(block_bytes) std::int8_t from[block_bytes];
    __m128i operator()(__m128i v) const {
        return _mm_shuffle_epi8(v, _mm_load_si128(reinterpret_cast<const __m128i*>(from)));
    }
};

// Pixels [first, last) of a block from a load that begins with pixel `first`; zeros elsewhere.
template <Gather G>
constexpr Shuffle gather_shuffle(int first, int last) {
    Shuffle shuffle{};
    for (int i = 0; i < block_bytes; ++i) {
        const int pixel = i / G.lanes;
        const int from = G.from[i % G.lanes];
        const bool taken = from != no_byte && pixel >= first && pixel < last;
        shuffle.from[i] = static_cast<std::int8_t>(taken ? (pixel - first) * G.step + from : -128);
    }
    return shuffle;
}

// The last pixel of a block in the place of each pixel.
template <int Lanes>
constexpr Shuffle repeat_last_shuffle() {
    Shuffle shuffle{};
    for (int i = 0; i < block_bytes; ++i) {
        shuffle.from[i] = static_cast<std::int8_t>(block_bytes - Lanes + i % Lanes);
    }
    return shuffle;
}

// Interleaved pixels of two rows: those of the first row to the low half, those of the second to the high half.
template <int Lanes>
constexpr Shuffle pairs_apart_shuffle() {
    Shuffle shuffle{};
    for (int i = 0; i < block_bytes / 2; ++i) {
        const int from = i / Lanes * 2 * Lanes + i % Lanes;
        shuffle.from[i] = static_cast<std::int8_t>(from);
        shuffle.from[i + block_bytes / 2] = static_cast<std::int8_t>(from + Lanes);
    }
    return shuffle;
}

template <Gather G>
constexpr int block_pixels = block_bytes / G.lanes;

// One block of pixels, its bytes moved to their lanes.
template <Gather G>
__m128i gather(const std::uint8_t* raw) {
    constexpr int pixels = block_pixels<G>;
    if constexpr (G.lanes == 1) {
        return load(raw);
    } else if constexpr (pixels * G.step <= block_bytes) {
        static constexpr Shuffle all = gather_shuffle<G>(0, pixels);
        return all(load(raw));
    } else {
        static constexpr Shuffle low = gather_shuffle<G>(0, pixels / 2);
        static constexpr Shuffle high = gather_shuffle<G>(pixels / 2, pixels);
        return _mm_or_si128(low(load(raw)), high(load(raw + pixels / 2 * G.step)));
    }
}

template <int Bytes>
__m128i interleave(__m128i a, __m128i b) {
    if constexpr (Bytes == 1) return _mm_unpacklo_epi8(a, b);
    if constexpr (Bytes == 2) return _mm_unpacklo_epi16(a, b);
    if constexpr (Bytes == 4) return _mm_unpacklo_epi32(a, b);
    if constexpr (Bytes == 8) return _mm_unpacklo_epi64(a, b);
}

template <int Bytes>
__m128i interleave_high(__m128i a, __m128i b) {
    if constexpr (Bytes == 1) return _mm_unpackhi_epi8(a, b);
    if constexpr (Bytes == 2) return _mm_unpackhi_epi16(a, b);
    if constexpr (Bytes == 4) return _mm_unpackhi_epi32(a, b);
}

template <int Count>
struct Vectors {
    __m128i at[Count];
};

// The first `Bytes` bytes of each vector, one after another.
template <int Bytes, int Count>
__m128i join(const Vectors<Count>& parts) {
    if constexpr (Count == 1) {
        return parts.at[0];
    } else {
        Vectors<Count / 2> pairs;
        for (int i = 0; i < Count / 2; ++i) pairs.at[i] = interleave<Bytes>(parts.at[2 * i], parts.at[2 * i + 1]);
        return join<2 * Bytes>(pairs);
    }
}

// Calls body(constant 0), body(constant 1) ... so that each can be the immediate that a byte shift wants.
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
    __m128i operator()(__m128i raw, __m128i) { return raw; }
};

template <int Lanes>
struct Up {
    __m128i operator()(__m128i raw, __m128i above) { return _mm_add_epi8(raw, above); }
};

// A running sum within the block, then what the last block ended with on top.
template <int Lanes>
struct Sub {
    __m128i left = _mm_setzero_si128();

    __m128i operator()(__m128i raw, __m128i) {
        static constexpr Shuffle repeat_last = repeat_last_shuffle<Lanes>();
        __m128i sum = raw;
        if constexpr (Lanes <= 1) sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 1));
        if constexpr (Lanes <= 2) sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 2));
        sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 4));
        sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 8));
        sum = _mm_add_epi8(sum, left);
        left = repeat_last(sum);
        return sum;
    }
};

// pavgb rounds up and PNG rounds down: floor((a + b) / 2) = ~pavgb(~a, ~b). Kept inverted from pixel to pixel, since
// ~(x + ~t) = t - x, a pixel takes two operations.
template <int Lanes>
struct Average {
    __m128i inverse_left = _mm_set1_epi8(-1);

    __m128i operator()(__m128i raw, __m128i above) {
        constexpr int pixels = block_bytes / Lanes;
        const __m128i inverse_above = inverse(above);
        Vectors<pixels> done;
        repeat<pixels>([&](auto k) {
            constexpr int at = k.value * Lanes;
            const __m128i mean = _mm_avg_epu8(inverse_left, drop<at>(inverse_above));
            inverse_left = _mm_sub_epi8(mean, drop<at>(raw));
            done.at[k.value] = inverse_left;
        });
        return inverse(join<Lanes>(done));
    }
};

// Of the neighbours a, b and c the nearest to a + b - c is min(a, b) where 3c - (a + b) >= max(a, b), max(a, b) where
// it is <= min(a, b), and c elsewhere; ties fall as the standard says. All but a is known ahead, and the file's byte
// is added to the three candidates while the comparisons run.
template <int Lanes>
struct Paeth {
    __m128i left = _mm_setzero_si128();  // 16 bits a lane
    __m128i last_above = _mm_setzero_si128();

    __m128i operator()(__m128i raw, __m128i above) {
        const __m128i zero = _mm_setzero_si128();
        const __m128i corner = _mm_alignr_epi8(above, last_above, block_bytes - Lanes);
        last_above = above;
        const __m128i low =
            half_block(_mm_unpacklo_epi8(raw, zero), _mm_unpacklo_epi8(above, zero), _mm_unpacklo_epi8(corner, zero));
        const __m128i high =
            half_block(_mm_unpackhi_epi8(raw, zero), _mm_unpackhi_epi8(above, zero), _mm_unpackhi_epi8(corner, zero));
        return _mm_packus_epi16(low, high);
    }

    __m128i half_block(__m128i raw, __m128i above, __m128i corner) {
        constexpr int pixels = block_bytes / Lanes / 2;
        const __m128i sum = _mm_add_epi8(raw, corner);
        const __m128i bound = _mm_sub_epi16(_mm_add_epi16(_mm_add_epi16(corner, corner), corner), above);
        Vectors<pixels> done;
        repeat<pixels>([&](auto k) {
            constexpr int at = k.value * Lanes * 2;
            left = next(drop<at>(raw), drop<at>(above), drop<at>(sum), drop<at>(bound));
            done.at[k.value] = left;
        });
        return join<2 * Lanes>(done);
    }

    __m128i next(__m128i raw, __m128i above, __m128i raw_plus_corner, __m128i bound) const {
        const __m128i small = _mm_min_epi16(left, above);
        const __m128i large = _mm_max_epi16(left, above);
        const __m128i threshold = _mm_sub_epi16(bound, left);
        const __m128i not_small = _mm_cmpgt_epi16(large, threshold);
        const __m128i not_large = _mm_cmpgt_epi16(threshold, small);
        const __m128i other = _mm_blendv_epi8(_mm_add_epi8(small, raw), raw_plus_corner, not_small);
        return _mm_blendv_epi8(_mm_add_epi8(large, raw), other, not_large);
    }
};

template <Gather G, template <int> class Filter>
[[gnu::flatten]] void unfilter_row(const std::uint8_t* raw, const std::uint8_t* above, std::uint8_t* out,
                                   std::size_t pixels) {
    Filter<G.lanes> filter;
    for (std::size_t i = 0; i < pixels; i += block_pixels<G>) {
        store(out, filter(gather<G>(raw), load(above)));
        raw += block_pixels<G> * G.step;
        above += block_bytes;
        out += block_bytes;
    }
}

struct RowPair {
    __m128i upper, lower;
};

// Two rows as one whose pixels are twice as wide: pixel k of the upper row beside pixel k of the lower row.
template <int Lanes, class Filter>
RowPair unfilter_blocks(Filter& filter, RowPair raw, RowPair above) {
    const __m128i first = filter(interleave<Lanes>(raw.upper, raw.lower), interleave<Lanes>(above.upper, above.lower));
    const __m128i second =
        filter(interleave_high<Lanes>(raw.upper, raw.lower), interleave_high<Lanes>(above.upper, above.lower));
    static constexpr Shuffle apart = pairs_apart_shuffle<Lanes>();
    const __m128i left = apart(first);
    const __m128i right = apart(second);
    return {_mm_unpacklo_epi64(left, right), _mm_unpackhi_epi64(left, right)};
}

// The lower row runs one block behind the upper one, whose blocks are then the row above it. Zeros where one of them
// has no block leave a filter's state as it starts.
template <Gather G, template <int> class Filter>
[[gnu::flatten]] void unfilter_pair(RowSpan upper, RowSpan lower, const std::uint8_t* above, std::size_t pixels) {
    constexpr int raw_bytes = block_pixels<G> * G.step;
    const __m128i zero = _mm_setzero_si128();
    const std::size_t blocks = (pixels + block_pixels<G> - 1) / block_pixels<G>;
    Filter<2 * G.lanes> filter;
    RowPair done{zero, zero};
    for (std::size_t i = 0; i <= blocks; ++i) {
        const bool last = i == blocks;
        const __m128i upper_raw = last ? zero : gather<G>(upper.raw + i * raw_bytes);
        const __m128i lower_raw = i == 0 ? zero : gather<G>(lower.raw + (i - 1) * raw_bytes);
        const __m128i upper_above = last ? zero : load(above + i * block_bytes);
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

constinit const UnfilterTable unfilter_sse41 = unfilter_table<Filters>();

}  // namespace headrace::png

#endif
