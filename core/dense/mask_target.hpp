// Writer of masks into a batch: maps classes by a table and widens them to the batch's type.
#pragma once

#include <cstdint>

#include "dense/pixel_type.hpp"
#include "resample/resampler.hpp"
#include "view/placement.hpp"

namespace headrace {

// Format of all masks of a field.
struct MaskFormat {
    static constexpr int kValues = 1 << 16;
    static constexpr std::int64_t kNoPlace = INT64_MIN;  // marks source values without a value in the batch

    int bytes = 1;                        // per value in the batch: 1 (unsigned), 2, 4 or 8 (signed)
    std::int64_t ignore = 255;            // padding
    const std::int64_t* table = nullptr;  // kValues: the batch's value of each source value; borrowed
};

class MaskTarget final : public PixelRows {
public:
    // Writes `format.bytes` bytes per pixel at `at`. Padding is set to `ignore` immediately.
    void start(const MaskFormat&, std::uint8_t* at, const Placement&, PixelType);
    // Takes a row of u8 or u16. Throws Fault(corrupt) for a value with kNoPlace.
    void write(int y, const std::uint8_t* pixels) override;

private:
    template <typename Value>
    void write_as(std::uint8_t* out, const std::uint8_t* pixels) const;
    // True if bytes are copied unchanged, as for most masks.
    bool is_copied() const;

    MaskFormat format_{};
    std::uint8_t* at_ = nullptr;
    Placement place_{};
    PixelType type_ = PixelType::u8;
    bool copied_ = false;
};

}  // namespace headrace
