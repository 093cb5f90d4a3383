// Writer of depths into a batch. It buffers the source's numbers until the mapping is known.
#pragma once

#include <cstdint>
#include <vector>

#include "dense/depth_format.hpp"
#include "dense/pixel_type.hpp"
#include "resample/kernels.hpp"
#include "resample/resampler.hpp"
#include "view/placement.hpp"

namespace headrace {

class DepthTarget final : public PixelRows {
public:
    explicit DepthTarget(const Kernels& kernels) : kernels_(&kernels) {}

    // Writes one depth per pixel at `at`, and 1 (valid) or 0 per pixel at `valid` unless null.
    void start(const DepthFormat&, std::uint8_t* at, std::uint8_t* valid, const Placement&, PixelType);
    // Takes a row of u16 or f32.
    void write(int y, const std::uint8_t* pixels) override;
    // Call after the last row.
    void finish(const DepthMap&);

private:
    template <typename Number>
    void finish_row(int y, const DepthMap&);
    void put(std::size_t pixel, int count);
    void pad();

    const Kernels* kernels_;
    DepthFormat format_{};
    std::uint8_t *at_ = nullptr, *valid_ = nullptr;
    Placement place_{};
    PixelType type_ = PixelType::u16;
    std::vector<std::uint8_t> numbers_;  // of the inner rectangle
    std::vector<float> line_;
    std::vector<std::uint8_t> line_valid_;
};

}  // namespace headrace
