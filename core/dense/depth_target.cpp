#include "dense/depth_target.hpp"

#include <algorithm>
#include <cstring>

namespace headrace {

void DepthTarget::start(const DepthFormat& format, std::uint8_t* at, std::uint8_t* valid, const Placement& place,
                        PixelType type) {
    format_ = format;
    at_ = at;
    valid_ = valid;
    place_ = place;
    type_ = type;
    const auto width = static_cast<std::size_t>(place.inner_width);
    numbers_.resize(width * place.inner_height * size_of(type));
    line_.resize(std::max(place.width, place.inner_width) + 64);
    line_valid_.resize(width);
    if (place.pads()) pad();
}

void DepthTarget::pad() {
    std::fill(line_.begin(), line_.end(), static_cast<float>(format_.invalid));
    for (int y = 0; y < place_.height; ++y) put(static_cast<std::size_t>(y) * place_.width, place_.width);
    if (valid_ != nullptr) std::memset(valid_, 0, place_.pixels());
}

void DepthTarget::write(int y, const std::uint8_t* pixels) {
    const std::size_t bytes = static_cast<std::size_t>(place_.inner_width) * size_of(type_);
    std::memcpy(numbers_.data() + y * bytes, pixels, bytes);
}

void DepthTarget::finish(const DepthMap& map) {
    for (int y = 0; y < place_.inner_height; ++y) {
        type_ == PixelType::u16 ? finish_row<std::uint16_t>(y, map) : finish_row<float>(y, map);
        put(place_.pixel(y), place_.inner_width);
        if (valid_ != nullptr) std::copy(line_valid_.begin(), line_valid_.end(), valid_ + place_.pixel(y));
    }
}

template <typename Number>
void DepthTarget::finish_row(int y, const DepthMap& map) {
    const int width = place_.inner_width;
    const auto* numbers = reinterpret_cast<const Number*>(numbers_.data()) + static_cast<std::size_t>(y) * width;
    // Copies, and doubles until the end, so that compilers make vectors of both loops.
    const DepthFormat format = format_;
    const DepthMap to = map;
    float* const line = line_.data();
    for (int x = 0; x < width; ++x) {
        const double number = numbers[x], mapped = to(number * format.scale);
        line[x] = static_cast<float>(format.valid(number) ? mapped : format.invalid);
    }
    if (valid_ == nullptr) return;
    for (int x = 0; x < width; ++x) line_valid_[x] = format.valid(numbers[x]);
}

void DepthTarget::put(std::size_t pixel, int count) {
    store_floats(*kernels_, format_.dtype, line_.data(), count, at_ + pixel * size_of(format_.dtype));
}

}  // namespace headrace
