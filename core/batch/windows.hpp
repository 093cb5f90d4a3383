// From a view to the window of a decoded image that it cuts.
#pragma once

#include <string>

#include "resample/resampler.hpp"
#include "view/view.hpp"

namespace headrace {

// "WIDTHxHEIGHT", for messages.
std::string size_text(int width, int height);

// A crop that fell wholly into its padding.
inline bool lands_nowhere(const View& view) { return view.inner_width == 0 || view.inner_height == 0; }

// Throws Fault(view) for a view that is not of an image of this size.
void check_view(const View&, int width, int height);

// The smallest DCT scale, in eighths, at which the window has at least `margin` times its output's pixels each way;
// 8 if margin is 0, which allows no other.
int dct_scale(const View&, double margin);

// The view's window in the image scaled by exactly eighths/8; its ceiled size would let image and mask drift apart.
Window scaled_window(const View&, int width, int height, int eighths);

}  // namespace headrace
