#include "resample/levels.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>

#include <algorithm>

namespace headrace::avx512 {

namespace {

__m128i load(const std::uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

__m512i pixel_pairs(int base) {
    const char o = static_cast<char>(base), z = -128;
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(o, z, o + 4, z, o + 1, z, o + 5, z, o + 2, z, o + 6, z, o + 3, z, o + 7, z));
}

// The four outputs of a group usually span at most 16 pixels: then one load and one permutation bring every output's
// four pixels to its lane. Otherwise (scales above 4) each lane is loaded separately.
struct Pixels16 {
    const std::uint8_t* base;
    __m512i lanes;

    Pixels16(const std::uint8_t* rows, const std::int32_t* start, std::int32_t first) : base(rows + 4 * first) {
        const __m128i from =
            _mm_sub_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(start)), _mm_set1_epi32(first));
        const __m512i each = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                                      _mm512_castsi128_si512(from));
        lanes = _mm512_add_epi32(each, _mm512_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
    }
    __m512i operator()(std::size_t row_offset, int chunk) const {
        return _mm512_permutexvar_epi32(lanes, _mm512_loadu_si512(base + row_offset + 16 * chunk));
    }
};

struct PixelsApart {
    const std::uint8_t* rows;
    const std::int32_t* start;

    __m512i operator()(std::size_t row_offset, int chunk) const {
        const std::uint8_t* at = rows + row_offset + 16 * chunk;
        __m512i v = _mm512_castsi128_si512(load(at + 4 * start[0]));
        v = _mm512_inserti32x4(v, load(at + 4 * start[1]), 1);
        v = _mm512_inserti32x4(v, load(at + 4 * start[2]), 2);
        return _mm512_inserti32x4(v, load(at + 4 * start[3]), 3);
    }
};

// Computes one group of four outputs over all rows of the band. A constant Chunks keeps the weights in registers.
template <int Chunks, typename Source>
void group(const Source& source, std::size_t stride, int count, const std::int16_t* weight, std::int32_t start_sum,
           std::int16_t* const* out, std::size_t at) {
    const __m512i first = pixel_pairs(0), second = pixel_pairs(8), start = _mm512_set1_epi32(start_sum);
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    const __m512i spread_next = _mm512_add_epi32(spread, _mm512_set1_epi32(1));
    __m512i low[Chunks], high[Chunks];
    for (int c = 0; c < Chunks; ++c) {
        const __m512i w = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight + 16 * c)));
        low[c] = _mm512_permutexvar_epi32(spread, w);
        high[c] = _mm512_permutexvar_epi32(spread_next, w);
    }
    for (int r = 0; r < count; ++r) {
        __m512i sum = start;
        for (int c = 0; c < Chunks; ++c) {
            const __m512i v = source(r * stride, c);
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_shuffle_epi8(v, first), low[c]));
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_shuffle_epi8(v, second), high[c]));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[r] + at), _mm512_cvtsepi32_epi16(_mm512_srai_epi32(sum, 7)));
    }
}

template <int Chunks>
void groups(const std::uint8_t* rows, std::size_t stride, int count, const PackedTaps& taps, std::int16_t* const* out) {
    for (int g = 0; g < taps.groups; ++g) {
        const std::int32_t* start = taps.start + 4 * g;
        const std::int16_t* weight = taps.weight + static_cast<std::size_t>(g) * Chunks * 16;
        const std::size_t at = 16 * static_cast<std::size_t>(g);
        const auto [least, most] = std::minmax({start[0], start[3]});  // starts are monotonic
        if (most - least <= 12) {
            group<Chunks>(Pixels16(rows, start, least), stride, count, weight, taps.start_sum, out, at);
        } else {
            group<Chunks>(PixelsApart{rows, start}, stride, count, weight, taps.start_sum, out, at);
        }
    }
}

}  // namespace

void horizontal(const std::uint8_t* rows, std::size_t stride, int count, const PackedTaps& taps,
                std::int16_t* const* out) {
    if (taps.chunks > 4) return avx2::horizontal(rows, stride, count, taps, out);  // weights would spill from registers
    switch (taps.chunks) {
        case 1:
            return groups<1>(rows, stride, count, taps, out);
        case 2:
            return groups<2>(rows, stride, count, taps, out);
        case 3:
            return groups<3>(rows, stride, count, taps, out);
        default:
            return groups<4>(rows, stride, count, taps, out);
    }
}

void vertical(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values, std::uint8_t* out) {
    const __m512i half = _mm512_set1_epi16(64);
    for (int x = 0; x < values; x += 32) {
        __m512i sum = half;
        for (int k = 0; k < taps; ++k) {
            const __m512i row = _mm512_loadu_si512(rows[k] + x);
            sum = _mm512_adds_epi16(sum, _mm512_mulhrs_epi16(row, _mm512_set1_epi16(weight[k])));
        }
        const __m512i value = _mm512_max_epi16(_mm512_srai_epi16(sum, 7), _mm512_setzero_si512());
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm512_cvtusepi16_epi8(value));
    }
}

void vertical_exact(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values, int shift,
                    std::uint8_t* out) {
    avx2::vertical_exact(rows, weight, taps, values, shift, out);
}

void pack_rgb(const std::uint8_t* rgbx, int pixels, std::uint8_t* out) {
    const __m512i drop =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -128, -128, -128, -128));
    const __m512i close = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
    int i = 0;
    for (; i + 16 <= pixels; i += 16) {
        const __m512i v = _mm512_shuffle_epi8(_mm512_loadu_si512(rgbx + 4 * i), drop);
        _mm512_storeu_si512(out + 3 * i, _mm512_permutexvar_epi32(close, v));
    }
    scalar::pack_rgb(rgbx + 4 * i, pixels - i, out + 3 * i);
}

void split_rgb(const std::uint8_t* rgbx, int pixels, std::uint8_t* const* planes) {
    avx2::split_rgb(rgbx, pixels, planes);
}

void to_float(const std::uint8_t* values, int count, const float* subtract, const float* divide, float* out) {
    int i = 0;
    for (; i + kPeriod <= count; i += kPeriod) {
        for (int k = 0; k < kPeriod; k += 16) {
            const __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load(values + i + k)));
            _mm512_storeu_ps(out + i + k, _mm512_div_ps(_mm512_sub_ps(v, _mm512_loadu_ps(subtract + k)),
                                                        _mm512_loadu_ps(divide + k)));
        }
    }
    for (int k = 0; i < count; i += 16, k += 16) {
        const auto rest = static_cast<__mmask16>((1U << std::min(16, count - i)) - 1);
        const __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(rest, values + i)));
        _mm512_mask_storeu_ps(
            out + i, rest, _mm512_div_ps(_mm512_sub_ps(v, _mm512_loadu_ps(subtract + k)), _mm512_loadu_ps(divide + k)));
    }
}

void to_half(const float* values, int count, std::uint16_t* out) { avx2::to_half(values, count, out); }

void to_bfloat16(const float* values, int count, std::uint16_t* out) { avx2::to_bfloat16(values, count, out); }

}  // namespace headrace::avx512
#endif
