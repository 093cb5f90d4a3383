// MixUp and CutMix of a batch: image 2k with image 2k + 1, and vice versa. A batch's memory layout is
// [images, planes, height, width, values]: planes of single-value pixels, or one plane of pixels of all channels.
//
// Every level produces the same bits. A weight is a multiple of 2^-15, so that a blend of two bytes is exact in float32
// and in fixed point: bytes are rounded half up once, floats are not rounded before normalization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/level.hpp"
#include "resample/target.hpp"

namespace headrace {

inline constexpr int kMixOne = 1 << 15;

struct MixShape {
    int planes, height, width, values;

    std::size_t row() const { return static_cast<std::size_t>(width) * values; }
    std::size_t image() const { return row() * planes * height; }
};

// Mixing of a pair of images: a blend, an exchange of pixels, or nothing.
struct PairMix {
    int weight = kMixOne;                          // of an image's own pixels; kMixOne: no blend
    int left = 0, top = 0, right = 0, bottom = 0;  // exchanged box inside the image; empty: none

    bool blends() const { return weight != kMixOne; }
    bool swaps() const { return left < right && top < bottom; }
};

// Mixes consecutive pairs of images in place.
void mix(std::uint8_t* images, const MixShape&, std::span<const PairMix>, Level);
// The same as a w + b (1 - w), with each operation rounded.
void mix(float* images, const MixShape&, std::span<const PairMix>, Level);

// Mixes `count` images of bytes and writes (value - subtract) / divide, in `dtype` and the same layout. `subtract` and
// `divide` have one number per channel. Images beyond the pairs are only converted; the bytes are overwritten.
void mix_to_floats(std::uint8_t* images, std::size_t count, const MixShape&, std::span<const PairMix>,
                   std::span<const float> subtract, std::span<const float> divide, DType dtype, std::uint8_t* out,
                   Level);

}  // namespace headrace
