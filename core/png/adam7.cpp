#include "png/adam7.hpp"

#include <array>
#include <cstring>

namespace headrace::png {
namespace {

struct Pass {
    int x, y;            // its first pixel
    int x_step, y_step;  // between its pixels

    // Valid if the pass is not empty:
    int width(const PngInfo& info) const { return (info.width - x - 1) / x_step + 1; }
    int height(const PngInfo& info) const { return (info.height - y - 1) / y_step + 1; }
    // A pass without pixels has no rows either.
    bool empty(const PngInfo& info) const { return x >= info.width || y >= info.height; }
};

constexpr std::array<Pass, 7> passes = {
    {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}};

template <int Bytes>
void scatter(const std::uint8_t* row, int count, std::uint8_t* to, std::size_t step) {
    for (int i = 0; i < count; ++i) std::memcpy(to + i * step * Bytes, row + i * std::size_t{Bytes}, Bytes);
}

void scatter(const std::uint8_t* row, int count, int pixel_bytes, std::uint8_t* to, std::size_t step) {
    switch (pixel_bytes) {
        case 1:
            return scatter<1>(row, count, to, step);
        case 2:
            return scatter<2>(row, count, to, step);
        case 3:
            return scatter<3>(row, count, to, step);
        case 6:
            return scatter<6>(row, count, to, step);
        case 8:
            return scatter<8>(row, count, to, step);
        default:
            return scatter<4>(row, count, to, step);
    }
}

}  // namespace

std::size_t adam7_bytes(const PngInfo& info) {
    std::size_t bytes = 0;
    for (const Pass& pass : passes) {
        if (!pass.empty(info)) bytes += pass.height(info) * (1 + packed_row_bytes(info, pass.width(info)));
    }
    return bytes;
}

void Adam7::decode(const PngInfo& info, const std::uint8_t* raw, RowDecoder& rows, std::uint8_t* image,
                   std::size_t stride) {
    const int bytes = rows.pixel_bytes();
    const std::size_t row_bytes = static_cast<std::size_t>(info.width) * bytes + RowDecoder::slack_bytes;
    std::uint8_t* const memory = row_memory_.reserve(2 * row_bytes);
    for (const Pass& pass : passes) {
        if (pass.empty(info)) continue;
        const int width = pass.width(info);
        const std::size_t raw_bytes = 1 + packed_row_bytes(info, width);
        rows.begin(width);
        for (int i = 0; i < pass.height(info); ++i, raw += raw_bytes) {
            std::uint8_t* const row = memory + i % 2 * row_bytes;  // the other row buffer holds the row above
            rows.take(raw, raw_bytes, 1, row, row_bytes);
            const std::size_t y = pass.y + static_cast<std::size_t>(i) * pass.y_step;
            scatter(row, width, bytes, image + y * stride + static_cast<std::size_t>(pass.x) * bytes, pass.x_step);
        }
    }
}

}  // namespace headrace::png
