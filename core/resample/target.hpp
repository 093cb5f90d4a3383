// Where one image of a batch goes: memory, type, layout, normalisation, padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "resample/resampler.hpp"
#include "view/placement.hpp"

namespace headrace {

// uint16 is of wide pictures (dense/wide_sampler.hpp) alone.
enum class DType : std::uint8_t { uint8, float32, float16, bfloat16, uint16 };
std::size_t size_of(DType);

// Floats as values of `dtype` (not uint8) at `out`, where those of float32 may lie already.
void store_floats(const Kernels&, DType dtype, const float* values, int count, std::uint8_t* out);

// The same for every image of a batch.
struct Format {
    DType dtype = DType::uint8;
    bool planar = false;  // CHW, else HWC
    int channels = 3;     // 3, or 1 (the first of the source's); of wide pictures any
    int width = 0, height = 0;
    // Floats are (byte - subtract) / divide, by channel.
    float subtract[3] = {0, 0, 0}, divide[3] = {255, 255, 255};
    std::uint8_t fill[3] = {0, 0, 0};
    bool fill_zero = false;  // padding is 0 in the batch, whatever byte that would be

    std::size_t bytes() const { return static_cast<std::size_t>(width) * height * channels * size_of(dtype); }
};

// Writes finished rows into one image of a batch. Reused from image to image; one a thread.
class Target final : public PixelRows {
public:
    explicit Target(const Kernels& kernels) : kernels_(&kernels) {}

    // Rows are written below `at`, Format::bytes() of it and no more. Padding becomes `fill` at once.
    void start(const Format&, std::uint8_t* at, const Placement&);
    void write(int y, const std::uint8_t* rgbx) override;
    // Floats at `at` of a whole canvas of bytes that lies as they will, by the arithmetic of rows that are written.
    void convert(const Format&, const std::uint8_t* canvas, std::uint8_t* at);

    // The batch's values of a whole canvas of RGBX bytes, which has kRowSlack readable pixels behind it.
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
    float subtract_[4][kPeriod], divide_[4][kPeriod];  // interleaved, then a channel each
};

}  // namespace headrace
