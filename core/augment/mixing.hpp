// MixUp and CutMix of a batch: image 2k with image 2k + 1, and the reverse. A batch lies in memory as
// [images, planes, height, width, values]: planes of pixels of one value, or one plane of pixels of all channels.
//
// Every level gives the same bits. A weight is a multiple of 2^-15, so that a blend of two bytes is exact in float32
// and in fixed point: bytes are rounded half up once, floats of bytes not at all before they are normalised.
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

// What happens to a pair of images: a blend, pixels that change places, or nothing.
struct PairMix {
    int weight = kMixOne;                          // of an image's own pixels; kMixOne: no blend
    int left = 0, top = 0, right = 0, bottom = 0;  // a box within the image; empty: none

    bool blends() const { return weight != kMixOne; }
    bool swaps() const { return left < right && top < bottom; }
};

// Mixes images in their place, one pair after another.
void mix(std::uint8_t* images, const MixShape&, std::span<const PairMix>, Level);
// As a w + b (1 - w), each operation rounded.
void mix(float* images, const MixShape&, std::span<const PairMix>, Level);

// Writes what mixing `count` images of bytes gives as (value - subtract) / divide, in `dtype` and in the same layout.
// `subtract` and `divide` hold a number for each channel. Images beyond the pairs are only converted; bytes are
// overwritten.
void mix_to_floats(std::uint8_t* images, std::size_t count, const MixShape&, std::span<const PairMix>,
                   std::span<const float> subtract, std::span<const float> divide, DType dtype, std::uint8_t* out,
                   Level);

}  // namespace headrace
