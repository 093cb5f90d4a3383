// The filters on 16 bytes at a time. Average and Paeth need the pixel to the left before they can go on, so what
// counts is the number of operations between one pixel and the next: 2 and 5 here.
// Compiled for AVX2, although its vectors are half as wide: three-operand instructions save the copies.
// benchmarks/png_decode.py shows the gain over Level::scalar.
#if defined(__x86_64__)

#include <immintrin.h>

#include "png/unfilter_tables.hpp"

namespace headrace {
namespace {

// Everything below lives in this namespace or is an intrinsic: an inline function of the standard library, emitted
// here with AVX2, could replace its twin in files that must run without.

constexpr int block_bytes = 16;

__m128i load(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void store(std::uint8_t* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
__m128i inverse(__m128i v) { return _mm_xor_si128(v, _mm_set1_epi8(-1)); }

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

template <Gather G>
struct None {
    __m128i operator()(__m128i raw, __m128i) { return raw; }
};

template <Gather G>
struct Up {
    __m128i operator()(__m128i raw, __m128i above) { return _mm_add_epi8(raw, above); }
};

// A running sum within the block, then what the last block ended with on top.
template <Gather G>
struct Sub {
    __m128i left = _mm_setzero_si128();

    __m128i operator()(__m128i raw, __m128i) {
        static constexpr Shuffle repeat_last = repeat_last_shuffle<G.lanes>();
        __m128i sum = raw;
        if constexpr (G.lanes <= 1) sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 1));
        if constexpr (G.lanes <= 2) sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 2));
        sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 4));
        sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 8));
        sum = _mm_add_epi8(sum, left);
        left = repeat_last(sum);
        return sum;
    }
};

// pavgb rounds up and PNG rounds down: floor((a + b) / 2) = ~pavgb(~a, ~b). Kept inverted from pixel to pixel, since
// ~(x + ~t) = t - x, a pixel takes two operations.
template <Gather G>
struct Average {
    __m128i inverse_left = _mm_set1_epi8(-1);

    __m128i operator()(__m128i raw, __m128i above) {
        const __m128i inverse_above = inverse(above);
        Vectors<block_pixels<G>> done;
        repeat<block_pixels<G>>([&](auto k) {
            constexpr int at = k.value * G.lanes;
            const __m128i mean = _mm_avg_epu8(inverse_left, _mm_srli_si128(inverse_above, at));
            inverse_left = _mm_sub_epi8(mean, _mm_srli_si128(raw, at));
            done.at[k.value] = inverse_left;
        });
        return inverse(join<G.lanes>(done));
    }
};

// Of the three neighbours the nearest to a + b - c is min(a, b) where 3c - (a + b) >= max(a, b), max(a, b) where it
// is <= min(a, b), and c elsewhere; ties fall as the standard says. All but a is known ahead, and the file's byte is
// added to the three candidates while the comparisons run.
template <Gather G>
struct Paeth {
    __m128i left = _mm_setzero_si128();  // 16 bits a lane from here on
    __m128i last_above = _mm_setzero_si128();

    struct Half {
        __m128i raw, above, corner, sum, bound;

        Half(__m128i raw16, __m128i above16, __m128i corner16) : raw(raw16), above(above16), corner(corner16) {
            sum = _mm_add_epi8(raw, corner);
            bound = _mm_sub_epi16(_mm_add_epi16(_mm_add_epi16(corner, corner), corner), above);
        }
    };

    __m128i operator()(__m128i raw, __m128i above) {
        const __m128i zero = _mm_setzero_si128();
        const __m128i corner = _mm_alignr_epi8(above, last_above, block_bytes - G.lanes);
        const Half low(_mm_unpacklo_epi8(raw, zero), _mm_unpacklo_epi8(above, zero), _mm_unpacklo_epi8(corner, zero));
        const Half high(_mm_unpackhi_epi8(raw, zero), _mm_unpackhi_epi8(above, zero), _mm_unpackhi_epi8(corner, zero));
        last_above = above;
        const __m128i first = half_block(low);
        return _mm_packus_epi16(first, half_block(high));
    }

    __m128i half_block(const Half& half) {
        constexpr int pixels = block_pixels<G> / 2;
        Vectors<pixels> done;
        repeat<pixels>([&](auto k) {
            constexpr int at = k.value * G.lanes * 2;
            left = next(_mm_srli_si128(half.raw, at), _mm_srli_si128(half.above, at), _mm_srli_si128(half.sum, at),
                        _mm_srli_si128(half.bound, at));
            done.at[k.value] = left;
        });
        return join<2 * G.lanes>(done);
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

template <Gather G, class Filter>
void unfilter_row(const std::uint8_t* raw, const std::uint8_t* above, std::uint8_t* out, std::size_t pixels) {
    Filter filter;
    for (std::size_t i = 0; i < pixels; i += block_pixels<G>) {
        store(out, filter(gather<G>(raw), load(above)));
        raw += block_pixels<G> * G.step;
        above += block_bytes;
        out += block_bytes;
    }
}

template <Gather G>
struct Filters {
    static constexpr RowFilters rows = {unfilter_row<G, None<G>>, unfilter_row<G, Sub<G>>, unfilter_row<G, Up<G>>,
                                        unfilter_row<G, Average<G>>, unfilter_row<G, Paeth<G>>};
};

}  // namespace

constinit const UnfilterTable unfilter_avx2 = unfilter_table<Filters>();

}  // namespace headrace

#endif
