// Inverse of PNG's row filters. https://www.w3.org/TR/png-3/#9Filters
//
// A filter works on each byte of a pixel independently: it uses the same byte of the pixels to the left, above, and
// above left. So bytes that a layout drops (alpha, the low byte of 16 bits) need no unfiltering, and the other bytes
// can be moved to their lanes first: the filters run on 4-byte RGBX pixels for any file format, and write the layout
// directly, in one pass.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/level.hpp"
#include "common/rows.hpp"

namespace headrace::png {

// Mapping of the bytes of the file's pixel to the bytes of the pixel in memory.
struct Gather {
    int step;                 // bytes per pixel in the file
    int lanes;                // bytes per pixel in memory
    std::array<int, 4> from;  // byte of the file's pixel for each lane, or no_byte for zero
};
constexpr int no_byte = -1;

enum class Pixels : std::uint8_t {
    bytes,     // one byte each: 8-bit samples, or packed samples of fewer bits
    native16,  // big-endian 16-bit samples to native order
    grey8,     // this and all below to RGBX
    grey16,    // and grey + alpha of 8 bits
    grey_alpha16,
    rgb8,
    rgba8,
    rgb16,
    rgba16,
};
constexpr int pixels_kinds = 9;

constexpr Gather gather_of(Pixels pixels) {
    constexpr bool little = std::endian::native == std::endian::little;
    switch (pixels) {
        case Pixels::bytes:
            return {1, 1, {0}};
        case Pixels::native16:
            return {2, 2, {little ? 1 : 0, little ? 0 : 1}};
        case Pixels::grey8:
            return {1, 4, {0, 0, 0, no_byte}};
        case Pixels::grey16:
            return {2, 4, {0, 0, 0, no_byte}};
        case Pixels::grey_alpha16:
            return {4, 4, {0, 0, 0, no_byte}};
        case Pixels::rgb8:
            return {3, 4, {0, 1, 2, no_byte}};
        case Pixels::rgba8:
            return {4, 4, {0, 1, 2, no_byte}};
        case Pixels::rgb16:
            return {6, 4, {0, 2, 4, no_byte}};
        case Pixels::rgba16:
            return {8, 4, {0, 2, 4, no_byte}};
    }
    return {};
}

// Unfilters one row. `raw`: the file's filtered bytes; `above`: the row above in memory format, zeros above the first
// row; `out`: the row in memory format, which may be `above` itself. Each may be read or written up to
// unfilter_slack_bytes past its end.
using RowFilter = void (*)(const std::uint8_t* raw, const std::uint8_t* above, std::uint8_t* out, std::size_t pixels);
constexpr std::size_t unfilter_slack_bytes = kReadableBeyond;  // the filters need 32

// Unfilters two consecutive rows with the same filter in about the time of one. One of the two outs may be `above`.
struct RowSpan {
    const std::uint8_t* raw;
    std::uint8_t* out;
};
using PairFilter = void (*)(RowSpan upper, RowSpan lower, const std::uint8_t* above, std::size_t pixels);

// Filters by a row's filter byte: none, sub, up, average, Paeth.
struct RowFilters {
    std::array<RowFilter, 5> row;
    std::array<PairFilter, 5> pair;  // nullptr if pairs have no gain
};

const RowFilters& row_filters(Pixels pixels, Level level);

}  // namespace headrace::png
