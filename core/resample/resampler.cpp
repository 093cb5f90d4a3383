#include "resample/resampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/vectors.hpp"

namespace headrace {

namespace {

// Source rows converted between two emissions: enough to keep weights in registers, few enough to fit in cache.
constexpr int kBand = 16;

// Kernels round each tap's product to 1/128 level: with more taps, the errors could total half a level.
constexpr int kMostRoundedTaps = 64;

// With a lobed filter the weights of both passes are Q14, since they exceed 1 next to an edge. Horizontal sums start
// 128 levels lower, which keeps overshoots within 16 bits; the rows are then whole levels, like between Pillow's
// passes.
constexpr int kLobedShift = 14;
constexpr std::int32_t kLobedStart = -128 * kHorizontalOne;
static_assert(kHorizontalOne == 1 << kLobedShift);

void clip_to_levels(std::int16_t* row, int values) {
    for (int x = 0; x < values; x += 8) {
        i16x8 level = ((load<i16x8>(row + x) + 64) >> 7) + 128;
        level &= level > 0;
        level = (level & (level < 255)) | (255 & (level >= 255));
        store(row + x, level);
    }
}

int round_up(int value, int to) { return (value + to - 1) / to * to; }

void span_of(double from, double to, int low, int high, int outputs, Filter filter, int* first, int* last) {
    const double reach = reach_beyond(filter, from, to, outputs);
    // One pixel more than computed, so that rounding cannot fall outside.
    *first = std::max<double>(low, std::floor(from - reach) - 1);
    *last = std::min<double>(high, std::ceil(to + reach) + 1);
    *first = std::min(*first, high - 1);
    *last = std::max(*last, *first + 1);
}

// True if the outputs are the pixels from..to, one by one.
bool is_crop(double from, double to, int low, int high, int outputs) {
    return to - from == outputs && from == std::floor(from) && from >= low && to <= high;
}

}  // namespace

Reach reach_of(const Window& w, Filter filter) {
    Reach reach{};
    span_of(w.x0, w.x1, w.left, w.right, w.width, filter, &reach.left, &reach.right);
    span_of(w.y0, w.y1, w.top, w.bottom, w.height, filter, &reach.top, &reach.bottom);
    return reach;
}

void Resampler::start(const Window& window, Filter filter, int first_row, int first_column, int columns,
                      PixelRows& out) {
    window_ = window;
    has_lobes_ = has_lobes(filter);
    out_ = &out;
    next_row_ = first_row;
    next_output_ = 0;
    first_column_ = first_column;
    line_.resize(4 * (round_up(window.width, 8) + kRowSlack));
    is_copy_ = is_crop(window.x0, window.x1, window.left, window.right, window.width) &&
               is_crop(window.y0, window.y1, window.top, window.bottom, window.height);
    if (is_copy_) return;
    const Blend across(filter, window.x0, window.x1, window.left, window.right, window.width);
    const Blend down(filter, window.y0, window.y1, window.top, window.bottom, window.height);
    across_.blend(across, 4, kHorizontalOne, window.mirror);
    down_.blend(down, 1, has_lobes_ ? kHorizontalOne : kVerticalOne, false);
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
        // Groups of four slots are read whole: moved left if they would exceed the row.
        const int own = across_.start[from] - first_column;
        starts_[i] = std::min(own, std::max(0, columns - 4 * chunks));
        if (from != i) continue;  // padding of weight zero
        const int shift = own - starts_[i];
        for (int k = 0; k < across_.count[i]; ++k) {
            const int slot = k + shift;
            const std::size_t place = (static_cast<std::size_t>(i / 4) * chunks + slot / 4) * 4 + i % 4;
            weights_[place * 4 + slot % 4] = across_.weight[static_cast<std::size_t>(i) * across_.stride + k];
        }
    }
    packed_ = {starts_.data(), weights_.data(), groups, chunks, has_lobes_ ? kLobedStart : 64};
}

void Resampler::take(const std::uint8_t* rows, std::size_t stride, int count) {
    if (is_copy_) return copy_rows(rows, stride, count);
    while (count > 0) {
        const int band = std::min(count, kBand);
        take_band(rows, stride, band);
        rows += stride * band;
        count -= band;
    }
}

void Resampler::copy_rows(const std::uint8_t* rows, std::size_t stride, int count) {
    const int top = static_cast<int>(window_.y0), left = static_cast<int>(window_.x0) - first_column_;
    for (; count > 0; --count, ++next_row_, rows += stride) {
        if (next_row_ < top || next_row_ >= top + window_.height) continue;
        const std::uint8_t* row = rows + 4 * left;
        if (window_.mirror) {
            std::uint8_t* const out = line_.data();
            for (int x = 0, last = window_.width - 1; x <= last; ++x) std::memcpy(out + 4 * x, row + 4 * (last - x), 4);
            row = out;
        }
        out_->write(next_output_++, row);
    }
}

void Resampler::take_band(const std::uint8_t* rows, std::size_t stride, int count) {
    std::int16_t* out[kBand];
    for (int r = 0; r < count; ++r) {
        out[r] = ring_.data() + static_cast<std::size_t>((next_row_ + r) % ring_rows_) * ring_stride_;
    }
    kernels_->horizontal(rows, stride, count, packed_, out);
    for (int r = 0; r < count && has_lobes_; ++r) clip_to_levels(out[r], ring_stride_);
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
        if (has_lobes_ || taps > kMostRoundedTaps) {
            const int shift = has_lobes_ ? kLobedShift : 22;  // Q7 times Q15
            kernels_->vertical_exact(tap_rows_.data(), weight, taps, values, shift, line_.data());
        } else {
            kernels_->vertical(tap_rows_.data(), weight, taps, values, line_.data());
        }
        out_->write(next_output_, line_.data());
    }
}

}  // namespace headrace
