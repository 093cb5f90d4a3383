#include "resample/levels.hpp"

#if defined(__AVX2__)
#include <immintrin.h>

#include <algorithm>

namespace headrace::avx2 {

namespace {

__m256i load_pair(const std::uint8_t* low, const std::uint8_t* high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

// RGBX of pixels 0 and 1 (or 2 and 3) of each lane as 16-bit pairs (R0 R1 G0 G1 B0 B1 X0 X1).
__m256i pixel_pairs(int base) {
    const char o = static_cast<char>(base), z = -128;
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(o, z, o + 4, z, o + 1, z, o + 5, z, o + 2, z, o + 6, z, o + 3, z, o + 7, z));
}

}  // namespace

void horizontal(const std::uint8_t* rows, std::size_t stride, int count, const PackedTaps& taps,
                std::int16_t* const* out) {
    const __m256i first = pixel_pairs(0), second = pixel_pairs(8);
    const __m256i start_sum = _mm256_set1_epi32(taps.start_sum);
    for (int g = 0; g < taps.groups; ++g) {
        const std::int32_t* start = taps.start + 4 * g;
        const std::int16_t* weight = taps.weight + static_cast<std::size_t>(g) * taps.chunks * 16;
        for (int r = 0; r < count; ++r) {
            const std::uint8_t* row = rows + r * stride;
            // Outputs 0 and 2 in one register, 1 and 3 in the other: packs_epi32 then restores their order.
            __m256i even = start_sum, odd = start_sum;
            for (int c = 0; c < taps.chunks; ++c) {
                const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight + 16 * c));
                const __m256i a = load_pair(row + 4 * (start[0] + 4 * c), row + 4 * (start[2] + 4 * c));
                const __m256i b = load_pair(row + 4 * (start[1] + 4 * c), row + 4 * (start[3] + 4 * c));
                // Each lane of w holds (w0 w1)(w2 w3) of its first output, then of its second.
                const __m256i sum_a =
                    _mm256_add_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(a, first), _mm256_shuffle_epi32(w, 0x00)),
                                     _mm256_madd_epi16(_mm256_shuffle_epi8(a, second), _mm256_shuffle_epi32(w, 0x55)));
                const __m256i sum_b =
                    _mm256_add_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(b, first), _mm256_shuffle_epi32(w, 0xaa)),
                                     _mm256_madd_epi16(_mm256_shuffle_epi8(b, second), _mm256_shuffle_epi32(w, 0xff)));
                even = _mm256_add_epi32(even, sum_a);
                odd = _mm256_add_epi32(odd, sum_b);
            }
            const __m256i packed = _mm256_packs_epi32(_mm256_srai_epi32(even, 7), _mm256_srai_epi32(odd, 7));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[r] + 16 * g), packed);
        }
    }
}

void vertical(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values, std::uint8_t* out) {
    const __m256i half = _mm256_set1_epi16(64);
    for (int x = 0; x < values; x += 32) {
        __m256i low = half, high = half;
        for (int k = 0; k < taps; ++k) {
            const __m256i w = _mm256_set1_epi16(weight[k]);
            const auto* row = reinterpret_cast<const __m256i*>(rows[k] + x);
            low = _mm256_adds_epi16(low, _mm256_mulhrs_epi16(_mm256_loadu_si256(row), w));
            high = _mm256_adds_epi16(high, _mm256_mulhrs_epi16(_mm256_loadu_si256(row + 1), w));
        }
        const __m256i packed = _mm256_packus_epi16(_mm256_srai_epi16(low, 7), _mm256_srai_epi16(high, 7));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_permute4x64_epi64(packed, 0xd8));
    }
}

void vertical_exact(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values, int shift,
                    std::uint8_t* out) {
    const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    const __m128i by = _mm_cvtsi32_si128(shift);
    for (int x = 0; x < values; x += 32) {
        __m256i words[2];
        for (int i = 0; i < 2; ++i) {
            __m256i low = half, high = half;
            for (int k = 0; k < taps; k += 2) {  // two rows per product; an odd last row has a partner of weight 0
                const int next = std::min(k + 1, taps - 1);
                const int pair = (weight[k] & 0xffff) | (next == k ? 0 : weight[next] * 65536);
                const __m256i w = _mm256_set1_epi32(pair);
                const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + x) + i);
                const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[next] + x) + i);
                low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w));
                high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w));
            }
            words[i] = _mm256_packs_epi32(_mm256_sra_epi32(low, by), _mm256_sra_epi32(high, by));
        }
        const __m256i packed = _mm256_packus_epi16(words[0], words[1]);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_permute4x64_epi64(packed, 0xd8));
    }
}

void pack_rgb(const std::uint8_t* rgbx, int pixels, std::uint8_t* out) {
    const __m256i drop =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -128, -128, -128, -128));
    const __m256i close = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    int i = 0;
    for (; i + 8 <= pixels; i += 8) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rgbx + 4 * i));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 3 * i),
                            _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(v, drop), close));
    }
    scalar::pack_rgb(rgbx + 4 * i, pixels - i, out + 3 * i);
}

// Splits eight pixels into 8 bytes each of R, G, B and X, then transposes four such vectors in units of 8 bytes.
void split_rgb(const std::uint8_t* rgbx, int pixels, std::uint8_t* const* planes) {
    const __m256i by_channel =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i halves = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    int i = 0;
    for (; i + 32 <= pixels; i += 32) {
        __m256i v[4];
        for (int k = 0; k < 4; ++k) {
            const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rgbx + 4 * (i + 8 * k)));
            v[k] = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(eight, by_channel), halves);
        }
        const __m256i red_blue[] = {_mm256_unpacklo_epi64(v[0], v[1]), _mm256_unpacklo_epi64(v[2], v[3])};
        const __m256i green[] = {_mm256_unpackhi_epi64(v[0], v[1]), _mm256_unpackhi_epi64(v[2], v[3])};
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[0] + i),
                            _mm256_permute2x128_si256(red_blue[0], red_blue[1], 0x20));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[1] + i),
                            _mm256_permute2x128_si256(green[0], green[1], 0x20));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[2] + i),
                            _mm256_permute2x128_si256(red_blue[0], red_blue[1], 0x31));
    }
    std::uint8_t* const rest[] = {planes[0] + i, planes[1] + i, planes[2] + i};
    scalar::split_rgb(rgbx + 4 * i, pixels - i, rest);
}

void to_float(const std::uint8_t* values, int count, const float* subtract, const float* divide, float* out) {
    int i = 0;
    for (; i + kPeriod <= count; i += kPeriod) {
        for (int k = 0; k < kPeriod; k += 8) {
            const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values + i + k));
            const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
            _mm256_storeu_ps(out + i + k, _mm256_div_ps(_mm256_sub_ps(v, _mm256_loadu_ps(subtract + k)),
                                                        _mm256_loadu_ps(divide + k)));
        }
    }
    int k = 0;
    for (; i + 8 <= count; i += 8, k += 8) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values + i));
        const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        _mm256_storeu_ps(out + i,
                         _mm256_div_ps(_mm256_sub_ps(v, _mm256_loadu_ps(subtract + k)), _mm256_loadu_ps(divide + k)));
    }
    scalar::to_float(values + i, count - i, subtract + k, divide + k, out + i);
}

void to_half(const float* values, int count, std::uint16_t* out) {
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
    }
    scalar::to_half(values + i, count - i, out + i);
}

void to_bfloat16(const float* values, int count, std::uint16_t* out) {
    const __m256i bias = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1);
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(values + i));
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
        const __m256i top = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(bias, odd)), 16);
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(top, top), 0xd8);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_castsi256_si128(packed));
    }
    scalar::to_bfloat16(values + i, count - i, out + i);
}

}  // namespace headrace::avx2
#endif
