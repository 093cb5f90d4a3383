// Source pixels and weights of each output pixel along one axis. Method: a kernel around the output's centre, stretched
// by the scale when shrinking, as in Pillow's resize and torchvision's antialias=True; the kernel of `linear` is not
// stretched, as in OpenCV's INTER_LINEAR and torch's antialias=False.
#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

enum class Filter : std::uint8_t {
    triangle,
    nearest,
    bicubic,
    linear,
    lanczos,
    nearest_exact,
    nearest_opencv,
    nearest_torch
};

// True if an output is the pixel under its first corner, not under its centre.
constexpr bool is_of_corner(Filter filter) {
    return filter == Filter::nearest_opencv || filter == Filter::nearest_torch;
}
constexpr bool is_nearest(Filter filter) {
    return filter == Filter::nearest || filter == Filter::nearest_exact || is_of_corner(filter);
}

// True if every source pixel under an output counts, so that a smaller decode of the image can replace it.
constexpr bool is_antialiased(Filter filter) { return !is_nearest(filter) && filter != Filter::linear; }
// True if the kernel has negative lobes, so that results may overshoot.
constexpr bool has_lobes(Filter filter) { return filter == Filter::bicubic || filter == Filter::lanczos; }
// Source pixels that a window may need beyond its edge on one side.
double reach_beyond(Filter filter, double from, double to, int outputs);

// One axis of resampling by any filter except nearest, in floating point. The window [from, to) becomes `outputs`
// pixels; taps stay inside [low, high). Requires low < high, from < to, and finite bounds.
class Blend {
public:
    Blend(Filter filter, double from, double to, int low, int high, int outputs);

    Filter filter() const { return filter_; }
    int outputs() const { return outputs_; }
    // Maximum number of taps of an output.
    int most() const { return most_; }
    struct Span {
        int first, count;
    };
    // Returns the source pixels of an output; their weights, which sum to 1, go to weight[most()].
    Span taps_of(int output, double* weight) const;

private:
    Filter filter_;
    double from_, scale_, stretch_, reach_;
    int low_, high_, outputs_, most_;
};

// One axis of resampling. Output i is the sum over k of weight[i * stride + k] * source[start[i] + k].
// Weights are integers that sum to `one` exactly; slots past an output's taps are zero.
struct Taps {
    int outputs = 0;
    int stride = 0;                   // slots per output
    std::vector<std::int32_t> start;  // non-decreasing unless reversed
    std::vector<std::int32_t> count;  // taps of each output, at least 1
    std::vector<std::int16_t> weight;

    // The stride is a multiple of `slots`; `reversed` mirrors the outputs (a flip is free).
    void blend(const Blend&, int slots, int one, bool reversed);

    // The same for nearest filters: the pixel under the centre of each output as Pillow picks it, or torch for
    // `nearest_exact`; or the pixel under its first corner, as OpenCV's INTER_NEAREST or torch's "nearest" picks it.
    // Libraries differ where a position lies between two pixels. `backward` rounds as in the mirrored source.
    void nearest(Filter filter, double from, double to, int low, int high, int outputs, bool reversed, bool backward);

private:
    std::vector<double> exact_;
};

}  // namespace headrace
