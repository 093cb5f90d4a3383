// The inner loops of augmentation, one table of functions an instruction-set level, from one source
// (augment_kernels.inl). Pixels are RGBX bytes, four a pixel; rows of a canvas follow without gaps. Every level gives
// the same bits: integers, or floats by single correctly rounded operations in the order of torchvision's kernels on
// uint8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/level.hpp"

namespace headrace {

// Words that vectors of blur() may reach beyond a row. The functions are static, so that no file of a higher level
// lends its machine code to the others.
inline constexpr std::size_t kBlurReach = 128;

// The margin of a row in words: four a tap, rounded up so that the row itself starts at a whole vector.
static inline std::size_t blur_margin(int taps) { return (4 * static_cast<std::size_t>(taps) + 63) / 64 * 64; }

// Words of scratch that blur() takes, aligned to 64 bytes: a row with its margins, and all rows, each with what vectors
// reach beyond it.
static inline std::size_t blur_scratch(int width, int height, int taps) {
    const std::size_t row = 4 * static_cast<std::size_t>(width) + kBlurReach;
    return row * (static_cast<std::size_t>(height) + 1) + 2 * blur_margin(taps);
}

struct AugmentKernels {
    // bytes * factor, cut to bytes: torchvision's adjust_brightness.
    void (*brightness)(std::uint8_t* pixels, std::size_t count, float factor);
    // bytes * factor + mean * (1 - factor).
    void (*contrast)(std::uint8_t* pixels, std::size_t count, float factor, float mean);
    // bytes * factor + luma * (1 - factor).
    void (*saturation)(std::uint8_t* pixels, std::size_t count, float factor);
    // Hue turned by `shift` of a full circle, -1/2 to 1/2.
    void (*hue)(std::uint8_t* pixels, std::size_t count, float shift);
    void (*grayscale)(std::uint8_t* pixels, std::size_t count);
    void (*invert)(std::uint8_t* pixels, std::size_t count);
    // Bytes of at least `threshold` (0 to 256) inverted.
    void (*solarize)(std::uint8_t* pixels, std::size_t count, int threshold);
    // Bytes & mask.
    void (*posterize)(std::uint8_t* pixels, std::size_t count, std::uint8_t mask);
    // Red, green and blue taken from these channels.
    void (*permute)(std::uint8_t* pixels, std::size_t count, int red, int green, int blue);
    // Bytes by three tables of 256.
    void (*lookup)(std::uint8_t* pixels, std::size_t count, const std::uint8_t* tables);
    // Sum of luma (r 0.2989 + g 0.587 + b 0.114, cut to a whole number).
    std::uint64_t (*luma_sum)(const std::uint8_t* pixels, std::size_t count);
    // Least and greatest byte of each of R, G, B.
    void (*range)(const std::uint8_t* pixels, std::size_t count, std::uint8_t* low, std::uint8_t* high);
    // Adds the bytes of R, G, B to three histograms of 256.
    void (*histogram)(const std::uint8_t* pixels, std::size_t count, std::uint32_t* counts);
    // Blend with the 3 x 3 mean (weight 5 in the middle, of 13); the border stays. `out` is another canvas.
    void (*sharpness)(const std::uint8_t* pixels, int width, int height, float factor, std::uint8_t* out);
    // Weighted sums of `taps` neighbours across, then down, edges reflected; weights of 1/32768, symmetric, the middle
    // first. `rows` is scratch of blur_scratch(width, height, across_taps) words.
    void (*blur)(std::uint8_t* pixels, int width, int height, const std::int16_t* across, int across_taps,
                 const std::int16_t* down, int down_taps, std::int16_t* rows);
    // sums += weight * bytes; out = sums * share + original * (1 - share): the parts of AugMix.
    void (*add_weighted)(const std::uint8_t* pixels, std::size_t count, float weight, float* sums);
    void (*mix)(const std::uint8_t* original, std::size_t count, float share, const float* sums, std::uint8_t* out);
};

// The level whose tables run at this one: AVX-512's use byte permutes and dot products too, and processors without them
// (Skylake, Cascade Lake) take AVX2's.
Level augment_level(Level);
const AugmentKernels& augment_kernels(Level);

}  // namespace headrace
