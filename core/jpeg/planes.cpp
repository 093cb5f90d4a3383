#include "jpeg/planes.hpp"

#include <algorithm>

namespace headrace {

void Planes::open(const BaselineFrame& frame, int mcus) {
    for (int i = 0; i < frame.components(); ++i) {
        Plane& plane = planes_[i];
        const int width = mcus * (i == 0 ? frame.mcu_width() : 8);
        plane.rows = 2 * (i == 0 ? frame.mcu_height() : 8);
        plane.stride = static_cast<std::size_t>(width) + 2 * kPixelSlack;
        plane.bytes.resize(std::max(plane.bytes.size(), plane.stride * plane.rows));
    }
}

}  // namespace headrace
