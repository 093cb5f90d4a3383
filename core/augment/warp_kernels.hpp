// Inner loops of geometric operations, one function table per instruction-set level, from one source
// (warp_kernels.inl). Every level produces the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/level.hpp"

namespace headrace {

// Pixels per block: buffers are longer than a row by a block, and rows of pixels may be written a block past their end.
inline constexpr int kWarpBlock = 16;

// Source coordinates are in pixels, with 0 at the centre of the first. Functions with a `count` read and write up to
// the end of the last block.
struct WarpKernels {
    // x + i dx, y + i dy.
    void (*affine)(const float* from, const float* step, int count, float* xs, float* ys);
    // (x + i dx) / (w + i dw) - 1/2, and the same of y.
    void (*perspective)(const float* from, const float* step, int count, float* xs, float* ys);
    // i + across[i], y + down[i].
    void (*displaced)(const float* across, const float* down, float y, int count, float* xs, float* ys);
    // Indices of the nearest pixels; width * height for coordinates outside, or NaN.
    void (*nearest)(const float* xs, const float* ys, int count, int width, int height, std::int32_t* numbers);
    // The same for the coordinates of affine().
    void (*nearest_affine)(const float* from, const float* step, int count, int width, int height,
                           std::int32_t* numbers);
    // Copies the four bytes at each index.
    void (*take_pixels)(const std::int32_t* numbers, int count, const std::uint8_t* from, std::uint8_t* to);
    // Bilinear values of an RGBX canvas. Edges are like torchvision's: pixels outside count as 0, and the result is
    // blended with `fill` by the weight of the pixels inside.
    void (*bilinear)(const std::uint8_t* canvas, int width, int height, const float* xs, const float* ys, int count,
                     std::uint32_t fill, std::uint8_t* out);
    // Uniform values in [-1, 1): words 2 (i % 2) and 2 (i % 2) + 1 of the Philox block of counter i / 2, for even
    // `count`.
    void (*noise)(std::uint64_t key, std::size_t count, float* xs, float* ys);
    // weights[0] * at[i] + sum of weights[k] * (at[i - k step] + at[i + k step]).
    void (*symmetric_sum)(const float* at, std::ptrdiff_t step, const float* weights, int taps, int count, float* out);
};

const WarpKernels& warp_kernels(Level);
const WarpKernels& warp_kernels_scalar();
const WarpKernels& warp_kernels_portable();
const WarpKernels& warp_kernels_avx2();
const WarpKernels& warp_kernels_avx512();

}  // namespace headrace
