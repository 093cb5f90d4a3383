#include "batch/turned_rows.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "jpeg/orientation.hpp"

namespace headrace {

namespace {

// Rows that are turned at once: columns as wide as a cache line.
constexpr int kBandRows = 16;

}  // namespace

Reach stored_reach(const Reach& shown, int width, int height, int orientation) {
    Reach reach = shown;
    if (mirrors_x(orientation)) {
        reach.left = width - shown.right;
        reach.right = width - shown.left;
    }
    if (mirrors_y(orientation)) {
        reach.top = height - shown.bottom;
        reach.bottom = height - shown.top;
    }
    if (is_sideways(orientation)) {
        std::swap(reach.left, reach.top);
        std::swap(reach.right, reach.bottom);
    }
    return reach;
}

void TurnedRows::start(const Reach& shown, int orientation, int pixel_bytes, int before) {
    const bool sideways = is_sideways(orientation);
    width_ = shown.right - shown.left;
    height_ = shown.bottom - shown.top;
    pixel_bytes_ = static_cast<std::size_t>(pixel_bytes);
    before_ = pixel_bytes_ * static_cast<std::size_t>(before);
    stored_ = pixel_bytes_ * static_cast<std::size_t>(sideways ? height_ : width_);
    next_ = memory_.reserve(pixel_bytes_ * static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_));
    to_right_ = static_cast<std::ptrdiff_t>(sideways ? stored_ : pixel_bytes_);
    to_below_ = static_cast<std::ptrdiff_t>(sideways ? pixel_bytes_ : stored_);
    first_ = (mirrors_x(orientation) ? to_right_ * (width_ - 1) : 0) +
             (mirrors_y(orientation) ? to_below_ * (height_ - 1) : 0);
    if (mirrors_x(orientation)) to_right_ = -to_right_;
    if (mirrors_y(orientation)) to_below_ = -to_below_;
}

void TurnedRows::take(const std::uint8_t* rows, std::size_t stride, int count) {
    for (int row = 0; row < count; ++row, rows += stride, next_ += stored_) std::memcpy(next_, rows + before_, stored_);
}

// Rows are turned band by band, and used while they are in the cache.
void TurnedRows::send(RowSink& sink) {
    const std::size_t stride = pixel_bytes_ * static_cast<std::size_t>(width_) + kReadableBeyond;
    std::uint8_t* const band = band_.reserve(kBandRows * stride);
    const std::uint8_t* from =
        next_ - pixel_bytes_ * static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_) + first_;
    for (int y = 0; y < height_; y += kBandRows, from += kBandRows * to_below_) {
        const int count = std::min(kBandRows, height_ - y);
        switch (pixel_bytes_) {
            case 1:
                turn<1>(from, band, stride, count);
                break;
            case 2:
                turn<2>(from, band, stride, count);
                break;
            case 3:
                turn<3>(from, band, stride, count);
                break;
            case 4:
                turn<4>(from, band, stride, count);
                break;
            case 6:
                turn<6>(from, band, stride, count);
                break;
            case 8:
                turn<8>(from, band, stride, count);
                break;
            default:
                turn_wide(from, band, stride, count);
                break;
        }
        sink.take(band, stride, count);
    }
}

// Four pixels at a time, collected in registers: pixel by pixel took twice as long.
template <std::size_t bytes>
void TurnedRows::turn(const std::uint8_t* from, std::uint8_t* to, std::size_t stride, int count) const {
    const auto move = [&]<int pixels>(std::integral_constant<int, pixels>, int x) {
        const std::uint8_t* at = from + x * to_right_;
        std::uint8_t* out = to + bytes * static_cast<std::size_t>(x);
        for (int y = 0; y < count; ++y, at += to_below_, out += stride) {
            std::uint8_t row[pixels * bytes];
            for (int i = 0; i < pixels; ++i) std::memcpy(row + i * bytes, at + i * to_right_, bytes);
            std::memcpy(out, row, sizeof row);
        }
    };
    int x = 0;
    for (; x + 4 <= width_; x += 4) move(std::integral_constant<int, 4>{}, x);
    for (; x < width_; ++x) move(std::integral_constant<int, 1>{}, x);
}

void TurnedRows::turn_wide(const std::uint8_t* from, std::uint8_t* to, std::size_t stride, int count) const {
    for (int y = 0; y < count; ++y, from += to_below_, to += stride)
        for (int x = 0; x < width_; ++x)
            std::memcpy(to + pixel_bytes_ * static_cast<std::size_t>(x), from + x * to_right_, pixel_bytes_);
}

}  // namespace headrace
