// Classes on their way into a batch: looked up in a table, and widened to the batch's type.
#pragma once

#include <cstdint>

#include "dense/pixel_type.hpp"
#include "resample/resampler.hpp"
#include "view/placement.hpp"

namespace headrace {

// The same for every mask of a field.
struct MaskFormat {
    static constexpr int kValues = 1 << 16;
    static constexpr std::int64_t kNoPlace = INT64_MIN;  // a source's value that the batch has no value for

    int bytes = 1;                        // of a value in the batch: 1 (unsigned), 2, 4 or 8 (signed)
    std::int64_t ignore = 255;            // padding
    const std::int64_t* table = nullptr;  // kValues: what becomes of each value of a source; borrowed
};

class MaskTarget final : public PixelRows {
public:
    // Writes `format.bytes` a pixel below `at`. Padding becomes `ignore` at once.
    void start(const MaskFormat&, std::uint8_t* at, const Placement&, PixelType);
    // A row of u8 or u16. Throws Fault(corrupt) for a value without a place.
    void write(int y, const std::uint8_t* pixels) override;

private:
    template <typename Value>
    void write_as(std::uint8_t* out, const std::uint8_t* pixels) const;
    // Bytes to bytes that stay as they are: what most masks are.
    bool is_copied() const;

    MaskFormat format_{};
    std::uint8_t* at_ = nullptr;
    Placement place_{};
    PixelType type_ = PixelType::u8;
    bool copied_ = false;
};

}  // namespace headrace
