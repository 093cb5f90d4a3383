#include "batch/grey_sink.hpp"

#include <bit>
#include <cstring>

namespace headrace {

namespace {

static_assert(std::endian::native == std::endian::little);

// Computes luma with weights of red, green and blue in 1/65536.
std::uint32_t luma(std::uint32_t rgbx) {
    const std::uint32_t red = rgbx & 0xFF, green = rgbx >> 8 & 0xFF, blue = rgbx >> 16 & 0xFF;
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
}

}  // namespace

void GreySink::start(RowSink& sink, int width) {
    sink_ = &sink;
    width_ = static_cast<std::size_t>(width);
}

void GreySink::take(const std::uint8_t* rows, std::size_t stride, int count) {
    const std::size_t bytes = 4 * width_;
    if (band_.size() < bytes * count + kReadableBeyond) band_.resize(bytes * count + kReadableBeyond);
    for (int row = 0; row < count; ++row) {
        const std::uint8_t* from = rows + row * stride;
        std::uint8_t* to = band_.data() + row * bytes;
        for (std::size_t x = 0; x < width_; ++x) {
            std::uint32_t pixel;
            std::memcpy(&pixel, from + 4 * x, 4);
            pixel = luma(pixel) * 0x010101;
            std::memcpy(to + 4 * x, &pixel, 4);
        }
    }
    sink_->take(band_.data(), bytes, count);
}

}  // namespace headrace
