#include "view/canvas.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/fault.hpp"
#include "common/limits.hpp"

namespace headrace {
namespace {

int checked_side(std::int64_t size) {
    if (size < 1 || size > kMaxSide)
        throw Fault(Code::unfit, "the view makes a side of " + std::to_string(size) + " pixels; expected 1 to " +
                                     std::to_string(kMaxSide) + ": the image is too narrow or too long for this view");
    return static_cast<int>(size);
}

}  // namespace

Axis::Axis(int source)
    : from_(0),
      to_(source),
      low_(0),
      high_(source),
      size_(checked_side(source)),
      inner_start_(0),
      inner_size_(source) {}

void Axis::pad(int before, int after) {
    size_ = checked_side(std::int64_t{size_} + before + after);
    inner_start_ += flipped_ ? after : before;
}

double Axis::edge(int offset) const {
    if (offset == 0) return from_;
    if (offset == inner_size_) return to_;
    return std::min(from_ + (to_ - from_) * offset / inner_size_, to_);
}

void Axis::crop(int start, int size) {
    if (flipped_) start = size_ - start - size;
    const bool source_scale = to_ - from_ == inner_size_;
    const int first = std::max(start, inner_start_);
    const int last = std::max(first, std::min(start + size, inner_start_ + inner_size_));
    if (first < last) {
        const double from = edge(first - inner_start_), to = edge(last - inner_start_);
        from_ = from;
        to_ = to;
    } else {
        to_ = from_;
    }
    if (source_scale && first < last) {
        low_ = std::max(low_, static_cast<int>(std::floor(from_)));
        high_ = std::min(high_, static_cast<int>(std::ceil(to_)));
    }
    size_ = size;
    inner_start_ = first < last ? first - start : 0;
    inner_size_ = last - first;
}

void Axis::resize(int size) {
    if (padded())
        throw Fault(
            Code::view,
            "a padded canvas cannot be resized: a crop before the resize is larger than this image, and pads it; "
            "resize first, or make the crop smaller");
    size_ = inner_size_ = checked_side(size);
    was_flipped_ = flipped_;
}

View Canvas::view() const {
    if (std::int64_t{x.size_} * y.size_ > Limits{}.max_pixels)
        throw Fault(Code::unfit, "the view's output would be " + std::to_string(x.size_) + " x " +
                                     std::to_string(y.size_) + " (width x height), beyond max_pixels " +
                                     std::to_string(Limits{}.max_pixels));
    const bool empty = x.inner_size_ == 0 || y.inner_size_ == 0;
    return {.x0 = x.from_,
            .y0 = y.from_,
            .x1 = empty ? x.from_ : x.to_,
            .y1 = empty ? y.from_ : y.to_,
            .left = x.low_,
            .top = y.low_,
            .right = x.high_,
            .bottom = y.high_,
            .width = x.size_,
            .height = y.size_,
            .inner_x = empty ? 0 : x.inner_start_,
            .inner_y = empty ? 0 : y.inner_start_,
            .inner_width = empty ? 0 : x.inner_size_,
            .inner_height = empty ? 0 : y.inner_size_,
            .hflip = x.turn(),
            .vflip = y.turn(),
            .transposed = transposed_};
}

}  // namespace headrace
