// Depths on their way into a batch: kept as the source's numbers until it is known what they become.
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

    // A depth a pixel goes below `at`; 1 or 0 a pixel, whether it is valid, below `valid`, unless that is null.
    void start(const DepthFormat&, std::uint8_t* at, std::uint8_t* valid, const Placement&, PixelType);
    // A row of u16 or f32.
    void write(int y, const std::uint8_t* pixels) override;
    // Once every row is written.
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
