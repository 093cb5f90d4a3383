// Decoded samples of a window: a ring buffer of two MCU rows per component, so that the chroma rows above and below a
// row of pixels are available.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "jpeg/frame.hpp"
#include "jpeg/pixels.hpp"

namespace headrace {

class Planes {
public:
    // Allocates rows of `mcus` MCUs.
    void open(const BaselineFrame&, int mcus);
    // A component's row; `y` in the component's samples from the top of the image, x = 0 at the left of the first MCU.
    std::uint8_t* row(int component, int y) {
        Plane& plane = planes_[component];
        return plane.bytes.data() + static_cast<std::size_t>(y & (plane.rows - 1)) * plane.stride + kPixelSlack;
    }
    std::size_t stride(int component) const { return planes_[component].stride; }

private:
    struct Plane {
        std::vector<std::uint8_t> bytes;
        std::size_t stride = 0;
        int rows = 0;  // a power of two
    };
    std::array<Plane, 3> planes_;
};

}  // namespace headrace
