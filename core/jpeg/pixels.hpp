// Conversion of coefficients to pixels, bit-exact with libjpeg-turbo's SIMD code (JDCT_ISLOW, fancy upsampling), even
// if corrupt coefficients overflow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/level.hpp"
#include "jpeg/frame.hpp"

namespace headrace {

struct BlockJob {
    const std::int16_t* coefficients;
    const std::uint16_t* quantisers;
    std::uint8_t* out;
    std::size_t stride;
};

// One row of pixels and its chroma: the nearest chroma row, and the next nearest if chroma is subsampled vertically.
// Chroma repeats its first sample before the row and its last after it. Rows may be read, and `out` written,
// kPixelSlack pixels past their ends.
struct PixelRow {
    const std::uint8_t *luma, *cb, *cb_far, *cr, *cr_far;
    int count;
    int odd;  // y % 2
    std::uint8_t* out;
};
constexpr int kPixelSlack = 64;

struct PixelKernels {
    // Inverse transforms of `count` blocks.
    void (*transform)(const BlockJob* jobs, int count);
    // The same to 4x4 samples, like libjpeg at half size.
    void (*transform_half)(const BlockJob* jobs, int count);
    // Upsamples a row's chroma and converts it to RGBX, by Sampling.
    std::array<void (*)(const PixelRow&), kSamplings> convert;
};

const PixelKernels& pixel_kernels(Level);

extern const PixelKernels pixels_scalar;
#if defined(__x86_64__)
extern const PixelKernels pixels_avx2;
#endif

// Constants of jidctint.c and jdcolor.c, as fractions of 2^13 and 2^16.
namespace islow {
constexpr int k0_298 = 2446, k0_390 = 3196, k0_541 = 4433, k0_765 = 6270, k0_899 = 7373, k1_175 = 9633;
constexpr int k1_501 = 12299, k1_847 = 15137, k1_961 = 16069, k2_053 = 16819, k2_562 = 20995, k3_072 = 25172;
// Of jidctred.c.
constexpr int k0_211 = 1730, k0_509 = 4176, k0_601 = 4926, k1_061 = 8697, k1_451 = 11893, k2_172 = 17799;
constexpr int kBits = 13, kPass1Bits = 2;
constexpr int kShift1 = kBits - kPass1Bits, kShift2 = kBits + kPass1Bits + 3;
}  // namespace islow
namespace colour {
constexpr int k1_402 = 91881, k1_772 = 116130, k0_344 = 22554, k0_714 = 46802;
}  // namespace colour

}  // namespace headrace
