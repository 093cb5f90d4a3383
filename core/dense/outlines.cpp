#include "dense/outlines.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace headrace {

namespace {

// Finds the x at which the polygon's edges cross a horizontal line, in ascending order.
void crossings(std::span<const double> xy, double y, std::vector<double>& found) {
    found.clear();
    const std::size_t corners = xy.size() / 2;
    for (std::size_t i = 0, j = corners - 1; i < corners; j = i++) {
        const double x0 = xy[2 * j], y0 = xy[2 * j + 1], x1 = xy[2 * i], y1 = xy[2 * i + 1];
        if ((y0 <= y) != (y1 <= y)) found.push_back(x0 + (y - y0) * (x1 - x0) / (y1 - y0));
    }
    std::sort(found.begin(), found.end());
}

// Returns the first picked column with its centre not left of x.
std::size_t first_column(std::span<const std::int32_t> columns, double x) {
    const auto at = std::partition_point(columns.begin(), columns.end(), [x](std::int32_t c) { return c + 0.5 < x; });
    return static_cast<std::size_t>(at - columns.begin());
}

}  // namespace

void paint_polygon(std::span<const double> xy, const PickedPixels& picked, std::uint8_t* mask) {
    if (xy.size() < 6) return;
    double low = INFINITY, high = -INFINITY;
    for (std::size_t i = 1; i < xy.size(); i += 2) low = std::min(low, xy[i]), high = std::max(high, xy[i]);
    std::vector<double> found;
    std::int32_t row = -1;
    const std::size_t width = picked.columns.size();
    for (std::size_t y = first_column(picked.rows, low); y < picked.rows.size() && picked.rows[y] + 0.5 <= high; ++y) {
        if (picked.rows[y] != row || y == 0) crossings(xy, (row = picked.rows[y]) + 0.5, found);
        for (std::size_t i = 0; i + 1 < found.size(); i += 2) {
            const std::size_t begin = first_column(picked.columns, found[i]);
            const std::size_t end = first_column(picked.columns, found[i + 1]);
            std::fill(mask + y * width + begin, mask + y * width + end, std::uint8_t{1});
        }
    }
}

void paint_runs(std::span<const std::int64_t> runs, int height, const PickedPixels& picked, std::uint8_t* mask) {
    std::vector<std::int64_t> ends(runs.size());
    std::int64_t end = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) ends[i] = end += runs[i];
    const std::size_t width = picked.columns.size();
    for (std::size_t x = 0; x < width; ++x) {
        const std::int64_t column = static_cast<std::int64_t>(picked.columns[x]) * height;
        auto run = std::upper_bound(ends.begin(), ends.end(), column);
        for (std::size_t y = 0; y < picked.rows.size(); ++y) {
            const std::int64_t pixel = column + picked.rows[y];
            while (run != ends.end() && *run <= pixel) ++run;
            if (run == ends.end()) break;
            if ((run - ends.begin()) % 2) mask[y * width + x] = 1;
        }
    }
}

std::vector<std::int64_t> parse_runs(std::string_view text) {
    std::vector<std::int64_t> runs;
    for (std::size_t at = 0; at < text.size();) {
        std::int64_t value = 0;
        int bits = 0;
        for (bool more = true; more;) {
            const int digit = at < text.size() ? text[at++] - '0' : -1;
            if (digit < 0 || digit > 63 || bits > 30) throw std::invalid_argument("runs that COCO's text cannot have");
            value |= static_cast<std::int64_t>(digit & 31) << bits;
            bits += 5;
            more = digit & 32;
            if (!more && digit & 16) value |= -(std::int64_t{1} << bits);
        }
        if (runs.size() > 2) value += runs[runs.size() - 2];
        if (value < 0 || value > INT32_MAX) throw std::invalid_argument("a run of less than no or too many pixels");
        runs.push_back(value);
    }
    return runs;
}

}  // namespace headrace
