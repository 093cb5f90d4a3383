// Which source pixels each output pixel of one axis is made of, and with what weights. Method: a kernel about the
// output's centre, stretched by the scale when shrinking, as Pillow's resize and torchvision's antialias=True define
// it; that of `linear` is not stretched, as OpenCV's INTER_LINEAR and torch's antialias=False have it.
#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

enum class Filter : std::uint8_t { triangle, nearest, bicubic, linear, lanczos };

// True if every source pixel under an output counts, so that a smaller decode of the same image may stand for it.
constexpr bool is_antialiased(Filter filter) { return filter != Filter::nearest && filter != Filter::linear; }
// True if the kernel has negative lobes, so that results may overshoot.
constexpr bool has_lobes(Filter filter) { return filter == Filter::bicubic || filter == Filter::lanczos; }
// Source pixels that a window can touch on one side beyond its edge.
double reach_beyond(Filter filter, double from, double to, int outputs);

// One axis of a resampling by any filter but nearest, in real numbers. The window [from, to) becomes `outputs` pixels;
// taps stay inside [low, high). Requires low < high, from < to, and finite bounds.
class Blend {
public:
    Blend(Filter filter, double from, double to, int low, int high, int outputs);

    Filter filter() const { return filter_; }
    int outputs() const { return outputs_; }
    // Taps of any one output, at most.
    int most() const { return most_; }
    struct Span {
        int first, count;
    };
    // The source pixels of an output, and their weights, whose sum is 1, in weight[most()].
    Span taps_of(int output, double* weight) const;

private:
    Filter filter_;
    double from_, scale_, stretch_, reach_;
    int low_, high_, outputs_, most_;
};

// One axis of a resampling. Output i is the sum over k of weight[i * stride + k] * source[start[i] + k].
// Weights are integers that sum to `one` exactly; slots beyond an output's own taps are zero.
struct Taps {
    int outputs = 0;
    int stride = 0;                   // slots an output
    std::vector<std::int32_t> start;  // non-decreasing unless reversed
    std::vector<std::int32_t> count;  // taps of each output, at least 1
    std::vector<std::int16_t> weight;

    // `slots` rounds the stride up; `reversed` mirrors the outputs (a flip costs nothing).
    void blend(const Blend&, int slots, int one, bool reversed);

    // The same interface for nearest-exact: the pixel under the centre of each output.
    void nearest(double from, double to, int low, int high, int outputs, bool reversed);

private:
    std::vector<double> exact_;
};

}  // namespace headrace
