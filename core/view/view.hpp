// Mapping of a part of the source to the output, shared by all spatial fields of a sample.
#pragma once

#include <cstdint>

namespace headrace {

struct View {
    double x0 = 0, y0 = 0, x1 = 0, y1 = 0;                  // source window, in source pixels
    std::int32_t left = 0, top = 0, right = 0, bottom = 0;  // filter taps stay inside these source pixels
    std::int32_t width = 0, height = 0;                     // output canvas
    std::int32_t inner_x = 0, inner_y = 0;                  // rectangle of the window on the canvas; the
    std::int32_t inner_width = 0, inner_height = 0;         // rest is padding
    std::uint8_t hflip = 0, vflip = 0;                      // of the whole canvas, applied last; 0: none
    std::uint8_t transposed = 0;  // 1: all of the above are of the source with its rows and columns swapped

    friend bool operator==(const View&, const View&) = default;
};

// Value of a flip that came before the resize: nearest then rounds ties as in the mirrored image. Others are 1.
inline constexpr std::uint8_t kFlippedFirst = 2;

}  // namespace headrace
