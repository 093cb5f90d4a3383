// The reference for every level: plain loops, same bits.
#include "resample/levels.hpp"

#include <algorithm>
#include <cstring>

namespace headrace::scalar {

void horizontal(const std::uint8_t* rows, std::size_t stride, int count, const PackedTaps& taps,
                std::int16_t* const* out) {
    for (int r = 0; r < count; ++r) {
        const std::uint8_t* row = rows + r * stride;
        for (int i = 0; i < 4 * taps.groups; ++i) {
            const std::int16_t* weight = taps.weight + (static_cast<std::size_t>(i / 4) * taps.chunks * 4 + i % 4) * 4;
            std::int32_t sum[4] = {64, 64, 64, 64};
            for (int c = 0; c < taps.chunks; ++c) {
                const std::uint8_t* pixel = row + 4 * (static_cast<std::size_t>(taps.start[i]) + 4 * c);
                for (int k = 0; k < 4; ++k) {
                    for (int channel = 0; channel < 4; ++channel) {
                        sum[channel] += pixel[4 * k + channel] * weight[16 * c + k];
                    }
                }
            }
            for (int channel = 0; channel < 4; ++channel) {
                out[r][4 * i + channel] = static_cast<std::int16_t>(sum[channel] >> 7);
            }
        }
    }
}

void vertical(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values, std::uint8_t* out) {
    for (int x = 0; x < values; ++x) {
        int sum = 64;
        for (int k = 0; k < taps; ++k) {
            const int product = ((rows[k][x] * weight[k] >> 14) + 1) >> 1;
            sum = std::min(32767, sum + product);
        }
        out[x] = static_cast<std::uint8_t>(std::clamp(sum >> 7, 0, 255));
    }
}

void pack_rgb(const std::uint8_t* rgbx, int pixels, std::uint8_t* out) {
    for (int i = 0; i < pixels; ++i) {
        out[3 * i] = rgbx[4 * i];
        out[3 * i + 1] = rgbx[4 * i + 1];
        out[3 * i + 2] = rgbx[4 * i + 2];
    }
}

void split_rgb(const std::uint8_t* rgbx, int pixels, std::uint8_t* const* planes) {
    for (int channel = 0; channel < 3; ++channel) {
        for (int i = 0; i < pixels; ++i) planes[channel][i] = rgbx[4 * i + channel];
    }
}

void to_float(const std::uint8_t* values, int count, const float* subtract, const float* divide, float* out) {
    for (int i = 0, k = 0; i < count; ++i, k = k + 1 == kPeriod ? 0 : k + 1) {
        out[i] = (static_cast<float>(values[i]) - subtract[k]) / divide[k];
    }
}

// Round to nearest even, subnormal halves included; beyond 65504 becomes infinity.
void to_half(const float* values, int count, std::uint16_t* out) {
    for (int i = 0; i < count; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, values + i, 4);
        const std::uint32_t sign = bits >> 16 & 0x8000;
        bits &= 0x7fffffff;
        std::uint32_t half;
        if (bits >= 0x47800000) {  // 65536 and above, infinity, NaN
            half = bits > 0x7f800000 ? 0x7e00 | (bits >> 13 & 0x3ff) : 0x7c00;
        } else if (bits < 0x38800000) {  // below 2^-14: a subnormal half, by adding the magic 0.5
            float value;
            std::memcpy(&value, &bits, 4);
            value += 0.5f;
            std::uint32_t shifted;
            std::memcpy(&shifted, &value, 4);
            half = shifted - 0x3f000000;
        } else {
            half = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13;
        }
        out[i] = static_cast<std::uint16_t>(sign | half);
    }
}

void to_bfloat16(const float* values, int count, std::uint16_t* out) {
    for (int i = 0; i < count; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, values + i, 4);
        out[i] = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

}  // namespace headrace::scalar
