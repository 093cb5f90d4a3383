#include "resample/taps.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headrace {

namespace {

int clamp_to(double value, int low, int high) {
    if (value <= low) return low;
    if (value >= high) return high;
    return static_cast<int>(value);
}

int rounded(double value) { return static_cast<int>(value < 0 ? value - 0.5 : value + 0.5); }

// Returns the support in pixels on each side of the centre of an unstretched kernel.
double radius_of(Filter filter) {
    switch (filter) {
        case Filter::nearest:
        case Filter::nearest_exact:
        case Filter::nearest_opencv:
        case Filter::nearest_torch:
            return 0;
        case Filter::triangle:
        case Filter::linear:
            return 1;
        case Filter::bicubic:
            return 2;
        case Filter::lanczos:
            return 3;
    }
    return 0;
}

double stretch_of(Filter filter, double from, double to, int outputs) {
    return is_antialiased(filter) ? std::max((to - from) / outputs, 1.0) : 1.0;
}

// Positions of outputs in a resize of the pixels from `first` on: `next` is relative to `first`.
struct Steps {
    double first, step, next;
    int before = -1;  // outputs of the resized image before the window; -1: it is no crop of a resized image
    double all = 0;   // outputs of the resized image
};

// `within` is a position's place in its output: 0.5 for the centre. Pillow adds up centres from the start of the
// resized image on. For a fifth of all pairs of sizes some centres are between two pixels, and the sum's rounding
// decides. So a window that was cropped after its resize begins at the resized image's start, which is `low`.
Steps steps_of(double from, double to, int low, int high, int outputs, double within) {
    const double step = (to - from) / outputs;
    const double before = (from - low) / step, all = (high - low) / step;
    const auto is_whole = [](double count) {
        return std::abs(count - std::round(count)) < 1e-6 && count > -1 && count < 1 << 16;
    };
    if (!is_whole(before) || !is_whole(all)) return {std::floor(from), step, from - std::floor(from) + step * within};
    Steps steps{static_cast<double>(low), (high - low) / std::round(all), 0, static_cast<int>(std::round(before)),
                std::round(all)};
    steps.next = steps.step * within;
    for (int i = steps.before; i > 0; --i) steps.next += steps.step;
    return steps;
}

// Position of output `i` in a resize of `size` pixels to `all`, rounded as the filter's library rounds it: torch
// computes with 24 bits, and OpenCV inverts the scale twice.
double position_of(Filter filter, int i, double size, double all) {
    if (filter == Filter::nearest_opencv) return i * (1 / (all / size));
    const float within = filter == Filter::nearest_exact ? 0.5F : 0.0F;
    return (static_cast<float>(i) + within) * static_cast<float>(size / all);
}

double triangle(double x) { return std::max(0.0, 1.0 - x); }

// Keys' cubic with a = -1/2.
double cubic(double x) {
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }
double lanczos(double x) { return x < 3 ? sinc(x) * sinc(x / 3) : 0; }

// Computes the weights of the pixels first, first + 1, … around a centre; returns their sum.
template <double (*kernel)(double)>
double weigh(double centre, double stretch, int first, int count, double* weight) {
    double sum = 0;
    for (int k = 0; k < count; ++k) {
        weight[k] = kernel(std::abs(first + k - centre + 0.5) / stretch);
        sum += weight[k];
    }
    return sum;
}

double weigh_by(Filter filter, double centre, double stretch, int first, int count, double* weight) {
    if (filter == Filter::bicubic) return weigh<cubic>(centre, stretch, first, count, weight);
    if (filter == Filter::lanczos) return weigh<lanczos>(centre, stretch, first, count, weight);
    return weigh<triangle>(centre, stretch, first, count, weight);
}

}  // namespace

double reach_beyond(Filter filter, double from, double to, int outputs) {
    return radius_of(filter) * stretch_of(filter, from, to, outputs);
}

Blend::Blend(Filter filter, double from, double to, int low, int high, int outputs)
    : filter_(filter),
      from_(from),
      scale_((to - from) / outputs),
      stretch_(stretch_of(filter, from, to, outputs)),
      reach_(reach_beyond(filter, from, to, outputs)),
      low_(low),
      high_(high),
      outputs_(outputs),
      most_(std::min(high - low, 2 * static_cast<int>(std::ceil(reach_)) + 1)) {}

Blend::Span Blend::taps_of(int output, double* weight) const {
    // If the window extends beyond the bounds, the nearest pixel inside has the greatest weight.
    const double centre = std::clamp<double>(from_ + (output + 0.5) * scale_, low_, high_);
    const int first = clamp_to(centre - reach_ + 0.5, low_, high_ - 1);
    const int last = std::min(first + most_, std::max(clamp_to(centre + reach_ + 0.5, low_, high_), first + 1));
    const double sum = weigh_by(filter_, centre, stretch_, first, last - first, weight);
    for (int k = 0; k < last - first; ++k) weight[k] /= sum;
    return {first, last - first};
}

void Taps::blend(const Blend& axis, int slots, int one, bool reversed) {
    outputs = axis.outputs();
    const int most = axis.most();
    stride = (most + slots - 1) / slots * slots;
    start.assign(outputs, 0);
    count.assign(outputs, 0);
    weight.assign(static_cast<std::size_t>(outputs) * stride, 0);
    exact_.resize(most);
    for (int i = 0; i < outputs; ++i) {
        const auto [first, all] = axis.taps_of(i, exact_.data());
        const int at = reversed ? outputs - 1 - i : i;
        // Integer weights with an exact sum: the rounding error is added to the largest weight.
        std::int16_t* out = weight.data() + static_cast<std::size_t>(at) * stride;
        int total = 0, peak = 0;
        for (int k = 0; k < all; ++k) {
            const int w = rounded(exact_[k] * one);
            out[k] = static_cast<std::int16_t>(std::min(w, 32767));
            total += w;
            if (exact_[k] > exact_[peak]) peak = k;
        }
        if (std::abs(one - total) <= one / 256) {
            out[peak] = static_cast<std::int16_t>(std::min(32767, out[peak] + one - total));
        } else {  // thousands of taps, most below half a unit: differences of rounded prefix sums total `one` exactly
            double until = 0;
            for (int k = 0, given = 0; k < all; ++k) {
                until += exact_[k];
                const int sum_so_far = rounded(until * one);
                out[k] = static_cast<std::int16_t>(sum_so_far - given);
                given = sum_so_far;
            }
        }
        int taps = all;
        while (taps > 1 && out[taps - 1] == 0) --taps;
        int skip = 0;  // not for kernels with zeros between lobes: starts would not be monotonic
        while (!has_lobes(axis.filter()) && skip < taps - 1 && out[skip] == 0) ++skip;
        if (skip > 0) {
            std::copy(out + skip, out + taps, out);
            std::fill(out + taps - skip, out + taps, std::int16_t{0});
        }
        start[at] = first + skip;
        count[at] = taps - skip;
    }
}

void Taps::nearest(Filter filter, double from, double to, int low, int high, int outputs_, bool reversed,
                   bool backward) {
    if (backward) {
        nearest(filter, low + high - to, low + high - from, low, high, outputs_, !reversed, false);
        for (std::int32_t& pixel : start) pixel = low + high - 1 - pixel;
        return;
    }
    outputs = outputs_;
    stride = 1;
    start.assign(outputs, 0);
    count.assign(outputs, 1);
    weight.clear();
    if (outputs == 0) return;
    Steps steps = steps_of(from, to, low, high, outputs, is_of_corner(filter) ? 0 : 0.5);
    const bool sums = filter == Filter::nearest || steps.before < 0;
    for (int i = 0; i < outputs; ++i, steps.next += steps.step) {
        const double at = sums ? steps.next : position_of(filter, steps.before + i, high - low, steps.all);
        start[reversed ? outputs - 1 - i : i] = clamp_to(steps.first + std::floor(at), low, high - 1);
    }
}

}  // namespace headrace
