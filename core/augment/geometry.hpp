// Maps from output pixels to source pixels, equal to torchvision's geometric transforms.
#pragma once

#include <array>

#include "rng/stream.hpp"

namespace headrace {

// 3 x 3 map by rows: it maps (x, y, 1) of an output pixel's centre to (x w, y w, w) in the source. Pixel centres are at
// half-integers.
using Map = std::array<double, 9>;

// sin and cos of an angle in degrees, using only + - * / (the series of each on [-45, 45], with exact argument
// reduction).
struct SinCos {
    double sin, cos;
};
SinCos exact_sin_cos(double degrees);

// Unit of a translation: pixels; fractions of the size, rounded to whole pixels; fractions, truncated to whole pixels;
// pixels, truncated to whole pixels; fractions. Truncation tolerates a rounding error below a whole pixel.
enum class Translation { pixels = 0, rounded_share = 1, whole_share = 2, whole_pixels = 3, share = 4 };

// Inverse of torchvision's affine: rotate, then shear, scale and translate about the image's centre, or its top left
// corner. p: angle, translate x, y, scale, shear x, y, in degrees; shears may be tangents instead.
Map affine_map(const double* p, Translation, bool corner, bool tangents, int width, int height);

// Perspective that moves the corners inwards by up to distortion / 2 of each side: top left, top right, bottom right,
// bottom left, one draw each (x from the first word, y from the second).
Map perspective_map(const std::array<Draw, 4>& corners, double distortion, int width, int height);

}  // namespace headrace
