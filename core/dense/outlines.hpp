// Outlines of instances, polygons or runs, as masks of chosen pixels of their image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace headrace {

// Which pixels of an image: those of `rows` in `columns`, both in rising order, equal ones allowed.
struct PickedPixels {
    std::span<const std::int32_t> rows, columns;
    std::size_t count() const { return rows.size() * columns.size(); }
};

// Sets `mask`, a byte a picked pixel, to 1 where the pixel's middle lies within the closed polygon (even-odd rule).
// `xy`: x and y of each corner, in pixels; pixel 0 reaches from 0 to 1. Corners that are not finite have to be refused
// before.
void paint_polygon(std::span<const double> xy, const PickedPixels& picked, std::uint8_t* mask);

// Sets `mask` to 1 where the runs say so: lengths of pixels that are outside, inside, outside and so on, down each
// column of an image of that height after the other. Pixels behind the last run are outside.
void paint_runs(std::span<const std::int64_t> runs, int height, const PickedPixels& picked, std::uint8_t* mask);

// The runs in COCO's compressed text: six bits a character from '0' on, five of them a number's, lowest first, the
// sixth says that more follow; from the fourth number on the difference to the one before the last.
// Throws std::invalid_argument for anything else, or for a negative run.
std::vector<std::int64_t> parse_runs(std::string_view text);

}  // namespace headrace
