// Conversion of a view to a window of a decoded image.
#pragma once

#include <string>

#include "resample/resampler.hpp"
#include "view/view.hpp"

namespace headrace {

// "WIDTHxHEIGHT", for messages.
std::string size_text(int width, int height);

// True for a crop that is entirely in its padding.
inline bool lands_nowhere(const View& view) { return view.inner_width == 0 || view.inner_height == 0; }

// Throws Fault(view) if the view does not fit an image of this size.
void check_view(const View&, int width, int height);

// Returns the smallest DCT scale, in eighths, at which the window has at least `margin` times its output's pixels each
// way; 8 if margin is 0, which disables scaling.
int dct_scale(const View&, double margin);

// Returns the view's window in the image scaled by exactly eighths/8; with the size rounded up, image and mask would
// drift apart.
Window scaled_window(const View&, int width, int height, int eighths);

}  // namespace headrace
