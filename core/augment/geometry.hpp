// Maps from the pixels of an output to those of its source, as torchvision's geometric transforms have them.
#pragma once

#include <array>

#include "rng/stream.hpp"

namespace headrace {

// By rows; (x, y, 1) of an output pixel's middle becomes (x w, y w, w) of a place in the source. Pixel middles lie at
// halves.
using Map = std::array<double, 9>;

// sin and cos of an angle in degrees, by + - * / alone (the series of each on [-45, 45], where the argument is reduced
// without error).
struct SinCos {
    double sin, cos;
};
SinCos exact_sin_cos(double degrees);

// What a translation is given in: pixels; shares of the size, as the nearest whole pixels; shares, cut to whole pixels;
// pixels, cut to whole ones; shares. What a rounding error keeps below a whole pixel counts as one.
enum class Translation { pixels = 0, rounded_share = 1, whole_share = 2, whole_pixels = 3, share = 4 };

// The inverse of torchvision's affine: rotate, then shear, scale and translate about the middle of the image, or its
// top left corner. p: angle, translate x, y, scale, shear x, y, in degrees; shears may be given as tangents.
Map affine_map(const double* p, Translation, bool corner, bool tangents, int width, int height);

// The four corners move inwards by up to distortion / 2 of each side: top left, top right, bottom right, bottom left, a
// draw each (x from the first word, y from the second).
Map perspective_map(const std::array<Draw, 4>& corners, double distortion, int width, int height);

}  // namespace headrace
