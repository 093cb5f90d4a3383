#include "resample/taps.hpp"

#include <algorithm>
#include <cmath>

namespace headrace {

namespace {

double support_of(double scale) { return std::max(scale, 1.0); }

int clamp_to(double value, int low, int high) {
    if (value <= low) return low;
    if (value >= high) return high;
    return static_cast<int>(value);
}

}  // namespace

double triangle_reach(double from, double to, int outputs) { return support_of((to - from) / outputs); }

void Taps::triangle(double from, double to, int low, int high, int outputs_, int slots, int one, bool reversed) {
    outputs = outputs_;
    const double scale = (to - from) / outputs;
    const double support = support_of(scale);
    const int most = std::min(high - low, 2 * static_cast<int>(std::ceil(support)) + 1);
    stride = (most + slots - 1) / slots * slots;
    start.assign(outputs, 0);
    count.assign(outputs, 0);
    weight.assign(static_cast<std::size_t>(outputs) * stride, 0);
    exact_.resize(most);
    for (int i = 0; i < outputs; ++i) {
        const double centre = from + (i + 0.5) * scale;
        int first = clamp_to(centre - support + 0.5, low, high - 1);
        int last = std::max(clamp_to(centre + support + 0.5, low, high), first + 1);
        last = std::min(last, first + most);
        double sum = 0;
        for (int k = first; k < last; ++k) {
            exact_[k - first] = std::max(0.0, 1.0 - std::abs(k - centre + 0.5) / support);
            sum += exact_[k - first];
        }
        if (sum <= 0) {  // the window lies beyond the bounds: the nearest pixel inside
            exact_[0] = sum = 1;
            last = first + 1;
        }
        // Integer weights whose sum is exact: the rounding error goes to the largest.
        std::int16_t* out = weight.data() + static_cast<std::size_t>(reversed ? outputs - 1 - i : i) * stride;
        int total = 0, peak = 0;
        for (int k = 0; k < last - first; ++k) {
            const int w = static_cast<int>(exact_[k] / sum * one + 0.5);
            out[k] = static_cast<std::int16_t>(std::min(w, 32767));
            total += w;
            if (exact_[k] > exact_[peak]) peak = k;
        }
        if (std::abs(one - total) <= one / 256) {
            out[peak] = static_cast<std::int16_t>(std::min(32767, out[peak] + one - total));
        } else {  // thousands of taps, most of them below half a unit: the rounded sums' steps add up by themselves
            double until = 0;
            for (int k = 0, given = 0; k < last - first; ++k) {
                until += exact_[k];
                const int sum_so_far = static_cast<int>(until / sum * one + 0.5);
                out[k] = static_cast<std::int16_t>(sum_so_far - given);
                given = sum_so_far;
            }
        }
        int taps = last - first;
        while (taps > 1 && out[taps - 1] == 0) --taps;
        int skip = 0;
        while (skip < taps - 1 && out[skip] == 0) ++skip;
        if (skip > 0) {
            std::copy(out + skip, out + taps, out);
            std::fill(out + taps - skip, out + taps, std::int16_t{0});
        }
        const int at = reversed ? outputs - 1 - i : i;
        start[at] = first + skip;
        count[at] = taps - skip;
    }
}

void Taps::nearest(double from, double to, int low, int high, int outputs_, bool reversed) {
    outputs = outputs_;
    stride = 1;
    start.assign(outputs, 0);
    count.assign(outputs, 1);
    weight.clear();
    for (int i = 0; i < outputs; ++i) {
        // Multiplied before it is divided: exact for whole windows, where a centre may fall between two pixels.
        const double centre = from + (2.0 * i + 1) * (to - from) / (2.0 * outputs);
        start[reversed ? outputs - 1 - i : i] = clamp_to(std::floor(centre), low, high - 1);
    }
}

}  // namespace headrace
