#include "batch/cached_image.hpp"

#include <algorithm>

namespace headrace {

namespace {

void reverse_row(std::uint8_t* row, std::size_t width, std::size_t pixel_bytes) {
    if (pixel_bytes == 1) {
        std::reverse(row, row + width);
        return;
    }
    std::uint8_t* left = row;
    std::uint8_t* right = row + (width - 1) * pixel_bytes;
    for (; left < right; left += pixel_bytes, right -= pixel_bytes) std::swap_ranges(left, left + pixel_bytes, right);
}

}  // namespace

void mirror(const Canvas& canvas, bool from_left_to_right, bool upside_down) {
    if (canvas.width == 0) return;
    const std::size_t stride = canvas.width * canvas.pixel_bytes;
    for (std::size_t plane = 0; plane < canvas.planes; ++plane) {
        std::uint8_t* const top = canvas.data + plane * canvas.height * stride;
        for (std::size_t y = 0; from_left_to_right && y < canvas.height; ++y) {
            reverse_row(top + y * stride, canvas.width, canvas.pixel_bytes);
        }
        for (std::size_t y = 0; upside_down && y < canvas.height / 2; ++y) {
            std::swap_ranges(top + y * stride, top + (y + 1) * stride, top + (canvas.height - 1 - y) * stride);
        }
    }
}

SourceSize shrunk_size(SourceSize size, int short_side) {
    const std::int64_t shorter = std::min(size.width, size.height);
    if (shorter <= short_side) return size;
    const auto shrunk = [&](std::int64_t side) {
        return static_cast<int>(std::max<std::int64_t>(1, (2 * side * short_side + shorter) / (2 * shorter)));
    };
    return {shrunk(size.width), shrunk(size.height)};
}

}  // namespace headrace
