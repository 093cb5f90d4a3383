#include "dense/vector_target.hpp"

#include <cstring>

namespace headrace {

void VectorTarget::start(DType dtype, std::uint8_t* at, const Placement& place, float x_sign, float y_sign) {
    dtype_ = dtype;
    at_ = at;
    place_ = place;
    sign_[0] = x_sign;
    sign_[1] = y_sign;
    line_.resize(3 * static_cast<std::size_t>(place.inner_width) + 64);
    if (place.pads()) std::memset(at, 0, 3 * place.pixels() * size_of(dtype));
}

void VectorTarget::write(int y, const std::uint8_t* pixels) {
    const int count = 3 * place_.inner_width;
    std::memcpy(line_.data(), pixels, 4 * static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) line_[i] *= sign_[i % 3];
    store_floats(*kernels_, dtype_, line_.data(), count, at_ + 3 * place_.pixel(y) * size_of(dtype_));
}

}  // namespace headrace
