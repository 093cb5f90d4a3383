// Geometry of an image after the ops so far, without touching pixels: the position of the source on the canvas, and
// the visible window of the source. Everything is separable, so a canvas is two axes, which a quarter turn swaps.
#pragma once

#include <utility>

#include "view/view.hpp"

namespace headrace {

inline constexpr int kMaxSide = 1 << 30;  // of a canvas between ops; the final one is bounded in pixels

// One axis, stored unflipped: View flips last, so an op after a flip acts on the mirrored side here.
class Axis {
public:
    explicit Axis(int source);

    int size() const { return size_; }
    bool padded() const { return inner_start_ != 0 || inner_size_ != size_; }

    void pad(int before, int after);
    // Crops to [start, start + size), which is inside the canvas. At the source's scale the crop also bounds the
    // filter's taps; after a resize they may extend beyond it, since a literal resize before the crop would use them.
    void crop(int start, int size);
    void resize(int size);  // Fault(view) on a padded axis: its fill would be blended into the image
    void flip() { flipped_ = !flipped_; }
    // The flip of a view, with the resize that came after it, if any.
    std::uint8_t turn() const { return !flipped_ ? 0 : was_flipped_ ? kFlippedFirst : 1; }

private:
    friend class Canvas;
    double edge(int offset) const;  // converts canvas pixels from the inner start to a source coordinate

    double from_, to_;  // source window
    int low_, high_;    // tap bounds, source pixels
    int size_;          // canvas
    int inner_start_, inner_size_;
    bool flipped_ = false, was_flipped_ = false;  // now, and at the last resize
};

class Canvas {
public:
    Canvas(int source_width, int source_height) : x(source_width), y(source_height) {}

    void crop(int left, int top, int width, int height) {
        x.crop(left, width);
        y.crop(top, height);
    }
    void resize(int width, int height) {
        x.resize(width);
        y.resize(height);
    }
    // Turns by this many quarters of a circle, 0 to 3, counterclockwise like numpy.rot90.
    void turn(int quarters) {
        if (quarters % 2 != 0) {
            std::swap(x, y);
            transposed_ = !transposed_;
        }
        if (quarters >= 2) x.flip();
        if (quarters == 1 || quarters == 2) y.flip();
    }
    // Throws Fault(view) if the output would exceed Limits::max_pixels. A window entirely in the padding has an inner
    // rectangle of 0 x 0.
    View view() const;

    Axis x, y;

private:
    bool transposed_ = false;
};

}  // namespace headrace
