// Position of a view's window on its canvas, with rows numbered within the window.
#pragma once

#include <cstddef>

#include "view/view.hpp"

namespace headrace {

struct Placement {
    int width, height;                                // of the canvas
    int inner_x, inner_y, inner_width, inner_height;  // rectangle of the rows; the rest is padding
    bool flip_rows;                                   // vertical flip of the canvas, applied last

    // The horizontal flip is already applied: rows arrive mirrored.
    static Placement of(const View& v) {
        const int x = v.hflip ? v.width - v.inner_x - v.inner_width : v.inner_x;
        return {v.width, v.height, x, v.inner_y, v.inner_width, v.inner_height, v.vflip};
    }

    bool pads() const { return inner_width != width || inner_height != height; }
    std::size_t pixels() const { return static_cast<std::size_t>(width) * height; }
    int canvas_row(int canvas_y) const { return flip_rows ? height - 1 - canvas_y : canvas_y; }
    // The first pixel of inner row y, in the canvas's order.
    std::size_t pixel(int y) const {
        return static_cast<std::size_t>(canvas_row(inner_y + y)) * width + static_cast<std::size_t>(inner_x);
    }
};

}  // namespace headrace
