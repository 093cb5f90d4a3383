#include "batch/turned_rows.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "jpeg/orientation.hpp"

namespace headrace {

namespace {

// Rows at a time: as many as fill a cache line of the turned rows with pixels of four bytes.
constexpr int kBandRows = 16;

}  // namespace

Reach stored_reach(const Reach& shown, int width, int height, int orientation) {
    Reach reach = shown;
    if (mirrors_x(orientation)) reach.left = width - shown.right, reach.right = width - shown.left;
    if (mirrors_y(orientation)) reach.top = height - shown.bottom, reach.bottom = height - shown.top;
    if (is_sideways(orientation)) {
        std::swap(reach.left, reach.top);
        std::swap(reach.right, reach.bottom);
    }
    return reach;
}

void TurnedRows::start(const Reach& shown, int orientation, int pixel_bytes, int before) {
    const int width = shown.right - shown.left;
    height_ = shown.bottom - shown.top;
    sideways_ = is_sideways(orientation);
    columns_ = sideways_ ? height_ : width;
    before_ = before;
    pixel_bytes_ = static_cast<std::size_t>(pixel_bytes);
    stride_ = pixel_bytes_ * static_cast<std::size_t>(width);
    shown_ = memory_.reserve(stride_ * static_cast<std::size_t>(height_) + kReadableBeyond);
    const auto x = static_cast<std::ptrdiff_t>(pixel_bytes_), y = static_cast<std::ptrdiff_t>(stride_);
    const bool from_right = mirrors_x(orientation), from_below = mirrors_y(orientation);
    next_ = shown_ + (from_right ? x * (width - 1) : 0) + (from_below ? y * (height_ - 1) : 0);
    across_ = from_right ? -x : x;
    down_ = from_below ? -y : y;
    if (sideways_) std::swap(across_, down_);
}

void TurnedRows::take(const std::uint8_t* rows, std::size_t stride, int count) {
    for (; count > 0; count -= kBandRows, rows += kBandRows * stride) {
        const int band = std::min(count, kBandRows);
        switch (pixel_bytes_) {
            case 1:
                turn<1>(rows, stride, band);
                break;
            case 2:
                turn<2>(rows, stride, band);
                break;
            case 3:
                turn<3>(rows, stride, band);
                break;
            case 4:
                turn<4>(rows, stride, band);
                break;
            case 6:
                turn<6>(rows, stride, band);
                break;
            case 8:
                turn<8>(rows, stride, band);
                break;
            default:
                throw std::invalid_argument("expected pixels of 1, 2, 3, 4, 6 or 8 bytes");
        }
        next_ += band * down_;
    }
}

// Column by column if rows become columns, so that writes are consecutive; the band's reads are from the cache.
template <std::size_t bytes>
void TurnedRows::turn(const std::uint8_t* rows, std::size_t stride, int count) {
    const auto along = static_cast<std::ptrdiff_t>(stride), pixel = static_cast<std::ptrdiff_t>(bytes);
    const int outer = sideways_ ? columns_ : count, inner = sideways_ ? count : columns_;
    const std::ptrdiff_t outer_from = sideways_ ? pixel : along, inner_from = sideways_ ? along : pixel;
    const std::ptrdiff_t outer_to = sideways_ ? across_ : down_, inner_to = sideways_ ? down_ : across_;
    for (int i = 0; i < outer; ++i) {
        const std::uint8_t* from = rows + before_ * pixel + i * outer_from;
        std::uint8_t* to = next_ + i * outer_to;
        for (int k = 0; k < inner; ++k, from += inner_from, to += inner_to) std::memcpy(to, from, bytes);
    }
}

void TurnedRows::send(RowSink& sink) const {
    for (int y = 0; y < height_; y += kBandRows)
        sink.take(shown_ + stride_ * static_cast<std::size_t>(y), stride_, std::min(kBandRows, height_ - y));
}

}  // namespace headrace
