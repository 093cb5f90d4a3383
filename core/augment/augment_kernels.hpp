// Inner loops of augmentation, one function table per instruction-set level, from one source (augment_kernels.inl).
// Pixels are four RGBX bytes; rows of a canvas are contiguous. Every level produces the same bits: integers, or single
// correctly rounded float operations in the order of torchvision's uint8 kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/level.hpp"

namespace headrace {

// Words that vectors of blur() may access past a row. The functions below are static, so that machine code of a higher
// level cannot replace them in other files.
inline constexpr std::size_t kBlurReach = 128;

// Margin of a row in words: four per tap, rounded up so that the row itself is aligned to vectors.
static inline std::size_t blur_margin(int taps) { return (4 * static_cast<std::size_t>(taps) + 63) / 64 * 64; }

// Words of scratch for blur(), aligned to 64 bytes: a row with its margins, and all rows, each with the words that
// vectors access past it.
static inline std::size_t blur_scratch(int width, int height, int taps) {
    const std::size_t row = 4 * static_cast<std::size_t>(width) + kBlurReach;
    return row * (static_cast<std::size_t>(height) + 1) + 2 * blur_margin(taps);
}

struct AugmentKernels {
    // bytes * factor, clamped to bytes: torchvision's adjust_brightness.
    void (*brightness)(std::uint8_t* pixels, std::size_t count, float factor);
    // bytes * factor + mean * (1 - factor).
    void (*contrast)(std::uint8_t* pixels, std::size_t count, float factor, float mean);
    // bytes * factor + luma * (1 - factor).
    void (*saturation)(std::uint8_t* pixels, std::size_t count, float factor);
    // Rotates the hue by `shift` of a full circle, -1/2 to 1/2.
    void (*hue)(std::uint8_t* pixels, std::size_t count, float shift);
    void (*grayscale)(std::uint8_t* pixels, std::size_t count);
    void (*invert)(std::uint8_t* pixels, std::size_t count);
    // Inverts bytes of at least `threshold` (0 to 256).
    void (*solarize)(std::uint8_t* pixels, std::size_t count, int threshold);
    // Bytes & mask.
    void (*posterize)(std::uint8_t* pixels, std::size_t count, std::uint8_t mask);
    // Takes red, green and blue from these channels.
    void (*permute)(std::uint8_t* pixels, std::size_t count, int red, int green, int blue);
    // Maps bytes by three tables of 256.
    void (*lookup)(std::uint8_t* pixels, std::size_t count, const std::uint8_t* tables);
    // Sum of luma (r 0.2989 + g 0.587 + b 0.114, truncated).
    std::uint64_t (*luma_sum)(const std::uint8_t* pixels, std::size_t count);
    // Minimum and maximum byte of R, G and B.
    void (*range)(const std::uint8_t* pixels, std::size_t count, std::uint8_t* low, std::uint8_t* high);
    // Adds the bytes of R, G, B to three histograms of 256.
    void (*histogram)(const std::uint8_t* pixels, std::size_t count, std::uint32_t* counts);
    // Blends with the 3 x 3 mean (centre weight 5 of 13); the border is unchanged. `out` is another canvas.
    void (*sharpness)(const std::uint8_t* pixels, int width, int height, float factor, std::uint8_t* out);
    // Weighted sums of neighbours horizontally, then vertically, with reflected edges; symmetric weights in 1/32768,
    // centre first. `rows` is scratch of blur_scratch(width, height, across_taps) words.
    void (*blur)(std::uint8_t* pixels, int width, int height, const std::int16_t* across, int across_taps,
                 const std::int16_t* down, int down_taps, std::int16_t* rows);
    // sums += weight * bytes; out = sums * share + original * (1 - share): the steps of AugMix.
    void (*add_weighted)(const std::uint8_t* pixels, std::size_t count, float weight, float* sums);
    void (*mix)(const std::uint8_t* original, std::size_t count, float share, const float* sums, std::uint8_t* out);
};

// Returns the level of the kernels to use at this level: those of AVX-512 also need byte permutes and dot products, and
// CPUs without them (Skylake, Cascade Lake) use AVX2's.
Level augment_level(Level);
const AugmentKernels& augment_kernels(Level);

}  // namespace headrace
