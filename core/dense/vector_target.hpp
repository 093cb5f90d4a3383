// Writer of float directions into a batch.
#pragma once

#include <cstdint>
#include <vector>

#include "resample/kernels.hpp"
#include "resample/resampler.hpp"
#include "resample/target.hpp"
#include "view/placement.hpp"

namespace headrace {

class VectorTarget final : public PixelRows {
public:
    explicit VectorTarget(const Kernels& kernels) : kernels_(&kernels) {}

    // Writes three values of `dtype` (not uint8) per pixel at `at`; x and y are multiplied by 1 or -1. Padding is 0.
    void start(DType dtype, std::uint8_t* at, const Placement&, float x_sign, float y_sign);
    // Takes a row of three floats per pixel.
    void write(int y, const std::uint8_t* pixels) override;

private:
    const Kernels* kernels_;
    DType dtype_ = DType::float32;
    std::uint8_t* at_ = nullptr;
    Placement place_{};
    float sign_[3] = {1, 1, 1};
    std::vector<float> line_;
};

}  // namespace headrace
