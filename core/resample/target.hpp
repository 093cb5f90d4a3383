// Destination of one image of a batch: memory, type, layout, normalization, padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "resample/resampler.hpp"
#include "view/placement.hpp"

namespace headrace {

// uint16 is for wide pictures (dense/wide_sampler.hpp) only.
enum class DType : std::uint8_t { uint8, float32, float16, bfloat16, uint16 };
std::size_t size_of(DType);

// Stores floats as values of `dtype` (not uint8) at `out`, which for float32 may be `values` itself.
void store_floats(const Kernels&, DType dtype, const float* values, int count, std::uint8_t* out);

// Format of all images of a batch.
struct Format {
    DType dtype = DType::uint8;
    bool planar = false;  // CHW, else HWC
    int channels = 3;     // 3, or 1 (the source's first); any number for wide pictures
    int width = 0, height = 0;
    // Floats are (byte - subtract) / divide, per channel.
    float subtract[3] = {0, 0, 0}, divide[3] = {255, 255, 255};
    std::uint8_t fill[3] = {0, 0, 0};
    bool fill_zero = false;  // padding is 0 in the batch's values, regardless of `fill`

    std::size_t bytes() const { return static_cast<std::size_t>(width) * height * channels * size_of(dtype); }
};

// Writer of finished rows into one image of a batch. One per thread, reused between images.
class Target final : public PixelRows {
public:
    explicit Target(const Kernels& kernels) : kernels_(&kernels) {}

    // Rows are written at `at`, Format::bytes() bytes at most. Padding is filled immediately.
    void start(const Format&, std::uint8_t* at, const Placement&);
    void write(int y, const std::uint8_t* rgbx) override;
    // Converts a whole canvas of bytes, in the batch's layout, to floats at `at`, with the arithmetic of write().
    void convert(const Format&, const std::uint8_t* canvas, std::uint8_t* at);

    // Stores a whole canvas of RGBX bytes as the batch's values. It has kRowSlack readable pixels after its end.
    void store(const Format&, const std::uint8_t* rgbx, std::uint8_t* at);

private:
    void prepare(const Format&, std::uint8_t* at);
    void pad();
    void put(int canvas_y, int x, int pixels, const std::uint8_t* rgbx);
    void put_values(const std::uint8_t* bytes, int count, std::size_t value_index, int channel);
    void spread_constants();

    const Kernels* kernels_;
    Format format_{};
    std::uint8_t* at_ = nullptr;
    Placement place_{};
    std::vector<std::uint8_t> bytes_, fill_row_;
    std::vector<float> floats_;
    float subtract_[4][kPeriod], divide_[4][kPeriod];  // interleaved, then one channel each
};

}  // namespace headrace
