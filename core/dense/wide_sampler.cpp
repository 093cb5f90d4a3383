#include "dense/wide_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace headrace {

namespace {

template <typename T>
double value_at(const std::uint8_t* bytes, std::size_t index) {
    T value;
    std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
    return static_cast<double>(value);
}

template <typename T>
void spread(const std::uint8_t* row, int pixels, const WideSampler::Source& source, Channels channels, int outputs,
            double scale, double* out) {
    for (int x = 0; x < pixels; ++x, out += outputs) {
        const std::size_t at = static_cast<std::size_t>(x) * source.step;
        const auto value = [&](int channel) { return value_at<T>(row, at + channel) / scale; };
        switch (channels) {
            case Channels::same:
            case Channels::color:
            case Channels::first:
                for (int c = 0; c < outputs; ++c) out[c] = value(c);
                break;
            case Channels::luma:
                out[0] = (value(0) * 19595 + value(1) * 38470 + value(2) * 7471) / 65536;
                break;
            case Channels::opaque:
                for (int c = 0; c < 3; ++c) out[c] = value(c);
                out[3] = 1;
                break;
            case Channels::grey_color:
            case Channels::grey_opaque:
            case Channels::grey_alpha:
                for (int c = 0; c < 3; ++c) out[c] = value(0);
                if (outputs == 4) out[3] = channels == Channels::grey_alpha ? value(1) : 1;
                break;
        }
    }
}

}  // namespace

void WideSampler::set(Axis& axis, Filter filter, double from, double to, int low, int high, int outputs, bool reversed,
                      bool backward) {
    if (is_nearest(filter)) {
        Taps taps;
        taps.nearest(filter, from, to, low, high, outputs, reversed, backward);
        axis.start = taps.start;
        axis.count = taps.count;
        axis.stride = 1;
        axis.weight.assign(outputs, 1.0);
        return;
    }
    const Blend blend(filter, from, to, low, high, outputs);
    axis.start.resize(outputs);
    axis.count.resize(outputs);
    axis.stride = blend.most();
    axis.weight.resize(static_cast<std::size_t>(outputs) * axis.stride);
    for (int i = 0; i < outputs; ++i) {
        const int at = reversed ? outputs - 1 - i : i;
        const auto [first, count] = blend.taps_of(i, axis.weight.data() + static_cast<std::size_t>(at) * axis.stride);
        axis.start[at] = first;
        axis.count[at] = count;
    }
}

void WideSampler::start(const Format& format, const WideFormat& wide, std::uint8_t* at, const Placement& place) {
    format_ = format;
    wide_ = &wide;
    at_ = at;
    place_ = place;
    height_ = 0;
    if (!place.pads()) return;
    const auto channels = static_cast<std::size_t>(format.channels);
    line_.resize(channels * format.width);
    for (std::size_t i = 0; i < line_.size(); ++i) line_[i] = wide.fill[i % channels];
    const int beyond = place.inner_x + place.inner_width;
    for (int y = 0; y < format.height; ++y) {
        const int canvas_y = place.canvas_row(y);
        if (y < place.inner_y || y >= place.inner_y + place.inner_height) {
            store(canvas_y, 0, format.width, line_.data());
        } else {
            store(canvas_y, 0, place.inner_x, line_.data());
            store(canvas_y, beyond, format.width - beyond, line_.data());
        }
    }
}

void WideSampler::begin(const Window& window, Filter filter, const Source& source, Channels channels) {
    source_ = source;
    channels_ = channels;
    width_ = window.width;
    height_ = window.height;
    next_row_ = source.first_row;
    set(columns_, filter, window.x0, window.x1, window.left, window.right, width_, window.mirror, window.backward_x);
    set(rows_, filter, window.y0, window.y1, window.top, window.bottom, height_, false, window.backward_y);
    first_ = *std::min_element(columns_.start.begin(), columns_.start.end());
    last_ = first_;
    for (int i = 0; i < width_; ++i) last_ = std::max(last_, columns_.start[i] + columns_.count[i]);
    const auto values = static_cast<std::size_t>(format_.channels);
    line_.resize(values * (last_ - first_));
    resampled_.resize(values * width_);
    sums_.assign(values * width_ * height_, 0.0);
    first_output_ = 0;
}

void WideSampler::take(const std::uint8_t* rows, std::size_t stride, int count) {
    const std::size_t values = resampled_.size();
    for (int r = 0; r < count; ++r, ++next_row_, rows += stride) {
        while (first_output_ < height_ && rows_.start[first_output_] + rows_.count[first_output_] <= next_row_)
            ++first_output_;
        if (first_output_ == height_ || rows_.start[first_output_] > next_row_) continue;
        read(rows);
        across();
        for (int i = first_output_; i < height_ && rows_.start[i] <= next_row_; ++i) {
            const int tap = next_row_ - rows_.start[i];
            if (tap >= rows_.count[i]) continue;
            const double weight = rows_.weight[static_cast<std::size_t>(i) * rows_.stride + tap];
            if (weight == 0) continue;  // so that it adds no NaN
            double* const sum = sums_.data() + i * values;
            for (std::size_t k = 0; k < values; ++k) sum[k] += weight * resampled_[k];
        }
    }
}

// Reads the columns that outputs need, as fractions, in the output's channels.
void WideSampler::read(const std::uint8_t* row) {
    const std::size_t skipped = static_cast<std::size_t>(first_ - source_.first_column) * source_.step;
    const int pixels = last_ - first_, outputs = format_.channels;
    switch (source_.type) {
        case PixelType::u8:
            return spread<std::uint8_t>(row + skipped, pixels, source_, channels_, outputs, 255, line_.data());
        case PixelType::u16:
            return spread<std::uint16_t>(row + 2 * skipped, pixels, source_, channels_, outputs, 65535, line_.data());
        case PixelType::f32:
            return spread<float>(row + 4 * skipped, pixels, source_, channels_, outputs, 1, line_.data());
    }
}

void WideSampler::across() {
    const auto values = static_cast<std::size_t>(format_.channels);
    std::fill(resampled_.begin(), resampled_.end(), 0.0);
    for (int i = 0; i < width_; ++i) {
        double* const out = resampled_.data() + i * values;
        const double* const weight = columns_.weight.data() + static_cast<std::size_t>(i) * columns_.stride;
        const double* from = line_.data() + static_cast<std::size_t>(columns_.start[i] - first_) * values;
        for (int k = 0; k < columns_.count[i]; ++k, from += values) {
            if (weight[k] == 0) continue;
            for (std::size_t c = 0; c < values; ++c) out[c] += weight[k] * from[c];
        }
    }
}

void WideSampler::finish() {
    for (int y = 0; y < height_; ++y) {
        store(place_.canvas_row(place_.inner_y + y), place_.inner_x, width_, sums_.data() + y * resampled_.size());
    }
}

void WideSampler::store(int canvas_y, int x, int pixels, const double* values) {
    if (pixels <= 0) return;
    const auto channels = static_cast<std::size_t>(format_.channels);
    const std::size_t first = static_cast<std::size_t>(canvas_y) * format_.width + x;
    const std::size_t plane = static_cast<std::size_t>(format_.width) * format_.height;
    const auto count = static_cast<std::size_t>(pixels);
    const bool whole = format_.dtype == DType::uint8 || format_.dtype == DType::uint16;
    floats_.resize(channels * count + 64);
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t c = 0; c < channels; ++c) {
            const double share = values[i * channels + c];
            const double most = format_.dtype == DType::uint8 ? 255 : 65535;
            const double value = whole ? std::floor(std::clamp(share, 0.0, 1.0) * most + 0.5)
                                       : (share - wide_->subtract[c]) / wide_->divide[c];
            floats_[format_.planar ? c * count + i : i * channels + c] = static_cast<float>(value);
        }
    }
    const std::size_t runs = format_.planar ? channels : 1, length = format_.planar ? count : count * channels;
    for (std::size_t run = 0; run < runs; ++run) {
        const std::size_t index = format_.planar ? run * plane + first : first * channels;
        const float* const from = floats_.data() + run * length;
        std::uint8_t* const out = at_ + index * size_of(format_.dtype);
        if (!whole) {
            store_floats(*kernels_, format_.dtype, from, static_cast<int>(length), out);
            continue;
        }
        for (std::size_t k = 0; k < length; ++k) {
            const auto value = static_cast<std::uint16_t>(from[k]);
            if (format_.dtype == DType::uint8) {
                out[k] = static_cast<std::uint8_t>(value);
            } else {
                std::memcpy(out + 2 * k, &value, 2);
            }
        }
    }
}

}  // namespace headrace
