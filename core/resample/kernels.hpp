// Inner loops of resampling, one function table per instruction-set level. Every level produces the same bits: all
// arithmetic uses integers, or single correctly rounded float operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/level.hpp"

namespace headrace {

// Horizontal weights are Q14, the intermediate rows Q7, vertical weights Q15.
inline constexpr int kHorizontalOne = 1 << 14;
inline constexpr int kVerticalOne = 1 << 15;

// Slack pixels after finished rows, since kernels work on whole vectors.
inline constexpr int kRowSlack = 16;

// Horizontal taps in groups of four outputs. The last group is padded with outputs of weight zero.
struct PackedTaps {
    const std::int32_t* start;   // [groups][4], in pixels of the row
    const std::int16_t* weight;  // [groups][chunks][4 outputs][4 taps]
    int groups;
    int chunks;
    std::int32_t start_sum;  // initial value of each sum of bytes times Q14
};

// Period of the constants of to_float: a multiple of every vector width and of 1 and 3 channels.
inline constexpr int kPeriod = 48;

struct Kernels {
    // rows of RGBX bytes -> rows of Q7 int16 RGBX, rounded down. One destination pointer per row. `start_sum` keeps
    // every result within 16 bits.
    void (*horizontal)(const std::uint8_t* rows, std::size_t stride, int count, const PackedTaps&,
                       std::int16_t* const* out);
    // weighted sum of `taps` Q7 rows -> RGBX bytes. No weight is negative, and they sum to at most kVerticalOne.
    // `values` is a multiple of 32: buffers are padded.
    void (*vertical)(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values,
                     std::uint8_t* out);
    // The same with exact products and weights of any sign: (sum + 2^(shift - 1)) >> shift, clipped to bytes. No
    // partial sum of the products exceeds 31 bits.
    void (*vertical_exact)(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values, int shift,
                           std::uint8_t* out);
    // RGBX bytes -> RGB bytes; may write up to 16 bytes past 3 * pixels.
    void (*pack_rgb)(const std::uint8_t* rgbx, int pixels, std::uint8_t* out);
    // RGBX bytes -> planes of R, G and B; writes exactly `pixels` bytes to each.
    void (*split_rgb)(const std::uint8_t* rgbx, int pixels, std::uint8_t* const* planes);
    // (value - subtract) / divide for bytes; the constants repeat every kPeriod values.
    void (*to_float)(const std::uint8_t* values, int count, const float* subtract, const float* divide, float* out);
    // float -> IEEE half and bfloat16, round to nearest even. Finite input.
    void (*to_half)(const float* values, int count, std::uint16_t* out);
    void (*to_bfloat16)(const float* values, int count, std::uint16_t* out);
};

// Returns the kernels of a level that this CPU supports.
const Kernels& kernels(Level);

}  // namespace headrace
