// Which source pixels each output pixel of one axis is made of, and with what weights. Method: the triangle filter
// stretched by the scale when shrinking, as Pillow's resize and torchvision's antialias=True define it.
#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

// One axis of a resampling. Output i is the sum over k of weight[i * stride + k] * source[start[i] + k].
// Weights are integers that sum to `one` exactly; slots beyond an output's own taps are zero.
struct Taps {
    int outputs = 0;
    int stride = 0;                   // slots an output
    std::vector<std::int32_t> start;  // non-decreasing unless reversed
    std::vector<std::int32_t> count;  // taps of each output, at least 1
    std::vector<std::int16_t> weight;

    // Fills in the triangle filter for `outputs` pixels over the window [from, to). Taps stay inside [low, high).
    // `slots` rounds the stride up; `reversed` mirrors the outputs (a flip costs nothing).
    // Requires low < high, from < to, and finite bounds.
    void triangle(double from, double to, int low, int high, int outputs, int slots, int one, bool reversed);

    // The same interface for nearest-exact: the pixel under the centre of each output.
    void nearest(double from, double to, int low, int high, int outputs, bool reversed);

private:
    std::vector<double> exact_;
};

// Source pixels that a triangle-filtered window can touch on one side beyond its edge.
double triangle_reach(double from, double to, int outputs);

}  // namespace headrace
