#include "batch/windows.hpp"

#include <algorithm>
#include <cmath>

#include "common/fault.hpp"
#include "jpeg/jpeg.hpp"

namespace headrace {

std::string size_text(int width, int height) { return std::to_string(width) + "x" + std::to_string(height); }

void check_view(const View& v, int width, int height) {
    const bool finite = std::isfinite(v.x0) && std::isfinite(v.y0) && std::isfinite(v.x1) && std::isfinite(v.y1);
    const bool empty = lands_nowhere(v);
    if (!finite || !(v.x0 < v.x1 || empty) || !(v.y0 < v.y1 || empty)) {
        throw Fault(Code::view, "expected a window of positive, finite size, got [" + std::to_string(v.x0) + ", " +
                                    std::to_string(v.x1) + ") x [" + std::to_string(v.y0) + ", " +
                                    std::to_string(v.y1) + ")");
    }
    // A pixel of tolerance: windows are computed in floating point.
    if (v.x0 < -1 || v.y0 < -1 || v.x1 > width + 1.0 || v.y1 > height + 1.0) {
        throw Fault(Code::view, "the window leaves the image of " + size_text(width, height));
    }
    if (v.left < 0 || v.top < 0 || v.right > width || v.bottom > height || v.left >= v.right || v.top >= v.bottom) {
        throw Fault(Code::view, "the window's bounds leave the image of " + size_text(width, height));
    }
    if (v.inner_x < 0 || v.inner_y < 0 || v.inner_width < 0 || v.inner_height < 0 ||
        v.inner_width > v.width - v.inner_x || v.inner_height > v.height - v.inner_y) {
        throw Fault(Code::view, "the window lands outside its canvas of " + size_text(v.width, v.height));
    }
}

int dct_scale(const View& view, double margin) {
    if (margin == 0) return 8;
    for (int eighths = 1; eighths < 8; eighths *= 2) {
        if ((view.x1 - view.x0) * eighths / 8 >= margin * view.inner_width &&
            (view.y1 - view.y0) * eighths / 8 >= margin * view.inner_height) {
            return eighths;
        }
    }
    return 8;
}

Window scaled_window(const View& v, int width, int height, int eighths) {
    const double by = eighths / 8.0;
    const int scaled_width = JpegDecoder::scaled(width, eighths), scaled_height = JpegDecoder::scaled(height, eighths);
    return {v.x0 * by,
            v.y0 * by,
            v.x1 * by,
            v.y1 * by,
            v.left * eighths / 8,
            v.top * eighths / 8,
            std::min(scaled_width, JpegDecoder::scaled(v.right, eighths)),
            std::min(scaled_height, JpegDecoder::scaled(v.bottom, eighths)),
            v.inner_width,
            v.inner_height,
            v.hflip};
}

}  // namespace headrace
