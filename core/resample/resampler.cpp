#include "resample/resampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace headrace {

namespace {

// Source rows converted between two emissions: enough to keep weights in registers, few enough to stay in cache.
constexpr int kBand = 16;

// Kernels round each tap's product to 1/128 level: beyond this many, their errors could add up to half a level.
constexpr int kMostRoundedTaps = 64;

void vertical_exact(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values,
                    std::uint8_t* out) {
    for (int x = 0; x < values; ++x) {
        std::int32_t sum = 1 << 21;  // Q7 times Q15, weights that sum to 1: below 2^30
        for (int k = 0; k < taps; ++k) sum += std::int32_t{rows[k][x]} * weight[k];
        out[x] = static_cast<std::uint8_t>(std::min(255, sum >> 22));
    }
}

int round_up(int value, int to) { return (value + to - 1) / to * to; }

void span_of(double from, double to, int low, int high, int outputs, Filter filter, int* first, int* last) {
    const double reach = filter == Filter::nearest ? 0 : triangle_reach(from, to, outputs);
    // One pixel more than the arithmetic asks for, so that no rounding of it can fall outside.
    *first = std::max<double>(low, std::floor(from - reach) - 1);
    *last = std::min<double>(high, std::ceil(to + reach) + 1);
    *first = std::min(*first, high - 1);
    *last = std::max(*last, *first + 1);
}

}  // namespace

Reach reach_of(const Window& w, Filter filter) {
    Reach reach{};
    span_of(w.x0, w.x1, w.left, w.right, w.width, filter, &reach.left, &reach.right);
    span_of(w.y0, w.y1, w.top, w.bottom, w.height, filter, &reach.top, &reach.bottom);
    return reach;
}

void Resampler::start(const Window& window, int first_row, int first_column, int columns, PixelRows& out) {
    window_ = window;
    out_ = &out;
    next_row_ = first_row;
    next_output_ = 0;
    line_.resize(4 * (round_up(window.width, 8) + kRowSlack));
    across_.triangle(window.x0, window.x1, window.left, window.right, window.width, 4, kHorizontalOne, window.mirror);
    down_.triangle(window.y0, window.y1, window.top, window.bottom, window.height, 1, kVerticalOne, false);
    pack_horizontal(first_column, columns);
    ring_rows_ = down_.stride + kBand;
    ring_stride_ = round_up(4 * window.width, 32) + 32;
    ring_.resize(static_cast<std::size_t>(ring_rows_) * ring_stride_);
    tap_rows_.resize(std::max(down_.stride, kBand));
}

void Resampler::pack_horizontal(int first_column, int columns) {
    int most = 1;
    for (int i = 0; i < across_.outputs; ++i) most = std::max(most, across_.count[i]);
    const int chunks = (most + 3) / 4, groups = (across_.outputs + 3) / 4;
    starts_.resize(4 * groups);
    weights_.assign(static_cast<std::size_t>(groups) * chunks * 16, 0);
    for (int i = 0; i < 4 * groups; ++i) {
        const int from = std::min(i, across_.outputs - 1);
        // Groups of four slots are read whole: moved left where they would leave the row.
        const int own = across_.start[from] - first_column;
        starts_[i] = std::min(own, std::max(0, columns - 4 * chunks));
        if (from != i) continue;  // a filler of weight zero
        const int shift = own - starts_[i];
        for (int k = 0; k < across_.count[i]; ++k) {
            const int slot = k + shift;
            const std::size_t place = (static_cast<std::size_t>(i / 4) * chunks + slot / 4) * 4 + i % 4;
            weights_[place * 4 + slot % 4] = across_.weight[static_cast<std::size_t>(i) * across_.stride + k];
        }
    }
    packed_ = {starts_.data(), weights_.data(), groups, chunks};
}

void Resampler::take(const std::uint8_t* rows, std::size_t stride, int count) {
    while (count > 0) {
        const int band = std::min(count, kBand);
        take_triangle(rows, stride, band);
        rows += stride * band;
        count -= band;
    }
}

void Resampler::take_triangle(const std::uint8_t* rows, std::size_t stride, int count) {
    std::int16_t* out[kBand];
    for (int r = 0; r < count; ++r) {
        out[r] = ring_.data() + static_cast<std::size_t>((next_row_ + r) % ring_rows_) * ring_stride_;
    }
    kernels_->horizontal(rows, stride, count, packed_, out);
    next_row_ += count;
    emit_ready();
}

void Resampler::emit_ready() {
    for (; next_output_ < window_.height; ++next_output_) {
        const int first = down_.start[next_output_], taps = down_.count[next_output_];
        if (first + taps > next_row_) return;
        for (int k = 0; k < taps; ++k) {
            tap_rows_[k] = ring_.data() + static_cast<std::size_t>((first + k) % ring_rows_) * ring_stride_;
        }
        const std::int16_t* weight = down_.weight.data() + static_cast<std::size_t>(next_output_) * down_.stride;
        const int values = round_up(4 * window_.width, 32);
        (taps > kMostRoundedTaps ? vertical_exact : kernels_->vertical)(tap_rows_.data(), weight, taps, values,
                                                                        line_.data());
        out_->write(next_output_, line_.data());
    }
}

}  // namespace headrace
