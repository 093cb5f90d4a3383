#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/fault.hpp"
#include "common/limits.hpp"
#include "view/sample.hpp"

namespace headrace {
namespace {

// Changing one side by a pixel changes a cross product by the other picture's other side, so the largest of the four
// sides bounds the effect of rounding one side.
bool same_aspect(std::int64_t from_width, std::int64_t from_height, std::int64_t to_width, std::int64_t to_height) {
    const std::int64_t difference = std::abs(to_width * from_height - to_height * from_width);
    return difference <= std::max({from_width, from_height, to_width, to_height});
}

double scaled_edge(double edge, int from, int to) {
    const double end = to;
    return edge == from ? end : std::min(edge * end / from, end);
}

int scaled_low(int bound, int from, int to) { return static_cast<int>(std::int64_t{bound} * to / from); }
int scaled_high(int bound, int from, int to) { return static_cast<int>((std::int64_t{bound} * to + from - 1) / from); }

}  // namespace

View scale_view(const View& view, int from_width, int from_height, int to_width, int to_height, int factor,
                bool exact) {
    if (exact && (to_width != std::int64_t{from_width} * factor || to_height != std::int64_t{from_height} * factor))
        throw Fault(Code::unfit, "expected " + std::to_string(factor) + " times the " + std::to_string(from_width) +
                                     " x " + std::to_string(from_height) +
                                     " of the field that the view is drawn from, got " + std::to_string(to_width) +
                                     " x " + std::to_string(to_height) + " (width x height)");
    if (from_width < 1 || from_height < 1 || to_width < 1 || to_height < 1 ||
        !same_aspect(from_width, from_height, to_width, to_height))
        throw Fault(Code::unfit, "this field is " + std::to_string(to_width) + " x " + std::to_string(to_height) +
                                     " and the field that the view is drawn from is " + std::to_string(from_width) +
                                     " x " + std::to_string(from_height) +
                                     " (width x height): expected the same aspect ratio, to within a pixel's rounding");
    if (std::int64_t{view.width} * view.height * factor * factor > Limits{}.max_pixels)
        throw Fault(Code::unfit, "the output of scale=" + std::to_string(factor) + " would be beyond max_pixels " +
                                     std::to_string(Limits{}.max_pixels));
    if (view.transposed) {
        std::swap(from_width, from_height);
        std::swap(to_width, to_height);
    }
    View scaled = view;
    for (auto side :
         {&View::width, &View::height, &View::inner_x, &View::inner_y, &View::inner_width, &View::inner_height})
        scaled.*side *= factor;
    scaled.x0 = scaled_edge(view.x0, from_width, to_width);
    scaled.x1 = scaled_edge(view.x1, from_width, to_width);
    scaled.y0 = scaled_edge(view.y0, from_height, to_height);
    scaled.y1 = scaled_edge(view.y1, from_height, to_height);
    scaled.left = scaled_low(view.left, from_width, to_width);
    scaled.right = scaled_high(view.right, from_width, to_width);
    scaled.top = scaled_low(view.top, from_height, to_height);
    scaled.bottom = scaled_high(view.bottom, from_height, to_height);
    return scaled;
}

}  // namespace headrace
