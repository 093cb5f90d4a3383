#include "resample/target.hpp"

#include <algorithm>
#include <cstring>

namespace headrace {

std::size_t size_of(DType dtype) { return dtype == DType::uint8 ? 1 : dtype == DType::float32 ? 4 : 2; }

void store_floats(const Kernels& kernels, DType dtype, const float* values, int count, std::uint8_t* out) {
    if (dtype == DType::float16) return kernels.to_half(values, count, reinterpret_cast<std::uint16_t*>(out));
    if (dtype == DType::bfloat16) return kernels.to_bfloat16(values, count, reinterpret_cast<std::uint16_t*>(out));
    if (reinterpret_cast<const float*>(out) != values) std::memcpy(out, values, sizeof(float) * count);
}

void Target::start(const Format& format, std::uint8_t* at, const Placement& place) {
    prepare(format, at);
    place_ = place;
    if (place.pads()) pad();
}

void Target::prepare(const Format& format, std::uint8_t* at) {
    format_ = format;
    at_ = at;
    bytes_.resize(static_cast<std::size_t>(format.channels) * format.width + 64);
    if (format.dtype != DType::uint8) {
        floats_.resize(static_cast<std::size_t>(format.channels) * format.width + 64);
        spread_constants();
    }
}

void Target::convert(const Format& format, const std::uint8_t* canvas, std::uint8_t* at) {
    prepare(format, at);
    const bool interleaved = !format.planar && format.channels == 3;
    const int count = interleaved ? 3 * format.width : format.width;
    const int rows = interleaved ? format.height : format.height * format.channels;
    for (int row = 0; row < rows; ++row) {
        const std::size_t first = static_cast<std::size_t>(row) * count;
        put_values(canvas + first, count, first, interleaved ? 0 : 1 + row / format.height);
    }
}

void Target::store(const Format& format, const std::uint8_t* rgbx, std::uint8_t* at) {
    prepare(format, at);
    const std::size_t stride = 4 * static_cast<std::size_t>(format.width);
    for (int y = 0; y < format.height; ++y) put(y, 0, format.width, rgbx + stride * static_cast<std::size_t>(y));
}

void Target::pad() {
    if (format_.fill_zero) {
        std::memset(at_, 0, format_.bytes());
        return;
    }
    fill_row_.resize(4 * (static_cast<std::size_t>(format_.width) + kRowSlack));
    for (int x = 0; x < format_.width; ++x) std::memcpy(fill_row_.data() + 4 * x, format_.fill, 3);
    const int beyond = place_.inner_x + place_.inner_width;
    for (int y = 0; y < format_.height; ++y) {
        const int canvas_y = place_.canvas_row(y);
        if (y < place_.inner_y || y >= place_.inner_y + place_.inner_height) {
            put(canvas_y, 0, format_.width, fill_row_.data());
        } else {
            put(canvas_y, 0, place_.inner_x, fill_row_.data());
            put(canvas_y, beyond, format_.width - beyond, fill_row_.data());
        }
    }
}

void Target::spread_constants() {
    for (int k = 0; k < kPeriod; ++k) {
        subtract_[0][k] = format_.subtract[k % format_.channels];
        divide_[0][k] = format_.divide[k % format_.channels];
        for (int channel = 0; channel < 3; ++channel) {
            subtract_[1 + channel][k] = format_.subtract[channel];
            divide_[1 + channel][k] = format_.divide[channel];
        }
    }
}

void Target::write(int y, const std::uint8_t* rgbx) {
    put(place_.canvas_row(place_.inner_y + y), place_.inner_x, place_.inner_width, rgbx);
}

void Target::put(int canvas_y, int x, int pixels, const std::uint8_t* rgbx) {
    if (pixels <= 0) return;
    const std::size_t pixel = static_cast<std::size_t>(canvas_y) * format_.width + x;
    if (!format_.planar && format_.channels == 3) {
        kernels_->pack_rgb(rgbx, pixels, bytes_.data());
        return put_values(bytes_.data(), 3 * pixels, 3 * pixel, 0);
    }
    if (format_.channels == 1) {
        for (int i = 0; i < pixels; ++i) bytes_[i] = rgbx[4 * i];
        return put_values(bytes_.data(), pixels, pixel, 1);
    }
    const std::size_t plane = static_cast<std::size_t>(format_.width) * format_.height;
    std::uint8_t* const parts[] = {bytes_.data(), bytes_.data() + pixels, bytes_.data() + 2 * pixels};
    kernels_->split_rgb(rgbx, pixels, parts);
    for (int channel = 0; channel < 3; ++channel) {
        put_values(parts[channel], pixels, channel * plane + pixel, 1 + channel);
    }
}

void Target::put_values(const std::uint8_t* bytes, int count, std::size_t value_index, int channel) {
    std::uint8_t* out = at_ + value_index * size_of(format_.dtype);
    if (format_.dtype == DType::uint8) {
        std::memcpy(out, bytes, count);
        return;
    }
    // float32 is written in place: rows need no alignment. Other types need a separate buffer of floats.
    float* floats = format_.dtype == DType::float32 ? reinterpret_cast<float*>(out) : floats_.data();
    kernels_->to_float(bytes, count, subtract_[channel], divide_[channel], floats);
    store_floats(*kernels_, format_.dtype, floats, count, out);
}

}  // namespace headrace
