// Rasterization of instance outlines, polygons or runs, at chosen pixels of their image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace headrace {

// Pixels of an image: the product of `rows` and `columns`, both ascending, with repeats allowed.
struct PickedPixels {
    std::span<const std::int32_t> rows, columns;
    std::size_t count() const { return rows.size() * columns.size(); }
};

// Sets `mask`, one byte per picked pixel, to 1 if the pixel's centre is inside the closed polygon (even-odd rule).
// `xy`: x and y of each corner, in pixels; pixel 0 spans 0 to 1. The caller must reject non-finite corners.
void paint_polygon(std::span<const double> xy, const PickedPixels& picked, std::uint8_t* mask);

// Sets `mask` to 1 for pixels inside: runs are the lengths of pixels outside, inside, outside and so on, column by
// column, in an image of that height. Pixels after the last run are outside.
void paint_runs(std::span<const std::int64_t> runs, int height, const PickedPixels& picked, std::uint8_t* mask);

// Parses COCO's compressed runs: six bits per character from '0' on, five bits of a number, lowest first, and a
// continuation bit; from the fourth number on, numbers are differences to the number two before.
// Throws std::invalid_argument for malformed text and for negative runs.
std::vector<std::int64_t> parse_runs(std::string_view text);

}  // namespace headrace
