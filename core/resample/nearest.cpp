#include "resample/nearest.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

namespace headrace {

namespace {

template <std::size_t bytes>
void pick_pixels(const std::uint8_t* row, const std::vector<std::int32_t>& columns, int first_column,
                 std::uint8_t* out) {
    // Copied: otherwise the compiler must assume that writes of bytes may change the vector.
    const std::int32_t* const column = columns.data();
    const std::size_t count = columns.size();
#pragma GCC unroll 8
    for (std::size_t x = 0; x < count; ++x)
        std::memcpy(out + bytes * x, row + bytes * static_cast<std::size_t>(column[x] - first_column), bytes);
}

}  // namespace

void NearestSampler::start(const Window& window, Filter filter, int pixel_bytes, int first_row, int first_column,
                           PixelRows& out) {
    out_ = &out;
    pixel_bytes_ = pixel_bytes;
    height_ = window.height;
    next_row_ = first_row;
    first_column_ = first_column;
    next_output_ = 0;
    line_.resize(static_cast<std::size_t>(pixel_bytes) * (window.width + kRowSlack));
    across_.nearest(filter, window.x0, window.x1, window.left, window.right, window.width, window.mirror,
                    window.backward_x);
    down_.nearest(filter, window.y0, window.y1, window.top, window.bottom, window.height, false, window.backward_y);
}

void NearestSampler::take(const std::uint8_t* rows, std::size_t stride, int count) {
    for (int r = 0; r < count; ++r, ++next_row_, rows += stride) {
        if (next_output_ == height_ || down_.start[next_output_] > next_row_) continue;
        pick(rows);
        for (; next_output_ < height_ && down_.start[next_output_] == next_row_; ++next_output_) {
            out_->write(next_output_, line_.data());
        }
    }
}

void NearestSampler::pick(const std::uint8_t* row) {
    switch (pixel_bytes_) {
        case 1:
            return pick_pixels<1>(row, across_.start, first_column_, line_.data());
        case 2:
            return pick_pixels<2>(row, across_.start, first_column_, line_.data());
        case 4:
            return pick_pixels<4>(row, across_.start, first_column_, line_.data());
        case 12:
            return pick_pixels<12>(row, across_.start, first_column_, line_.data());
        default:
            throw std::invalid_argument("expected pixels of 1, 2, 4 or 12 bytes");
    }
}

}  // namespace headrace
