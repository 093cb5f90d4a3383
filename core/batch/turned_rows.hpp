// Part of a decoded image, turned by its EXIF orientation, or by its view.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/rows.hpp"
#include "common/scratch.hpp"
#include "resample/resampler.hpp"

namespace headrace {

// Returns the part of the stored image that an orientation displays as `shown`, part of an image of this displayed
// size; both sizes are of the same scale.
Reach stored_reach(const Reach& shown, int width, int height, int orientation);

// Collects stored rows, and passes them on as displayed. The pixels are those of a turned image, bit for bit, whatever
// becomes of them: if output pixels turned instead, those of nearest would differ, and those of lobed filters, which
// round between their passes. One per thread.
class TurnedRows final : public RowSink {
public:
    // The next rows are those of the stored part that is displayed as `shown`, of pixels of `pixel_bytes`, which begin
    // `before` columns before the part.
    void start(const Reach& shown, int orientation, int pixel_bytes, int before);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;
    // Passes on all displayed rows.
    void send(RowSink& sink);

private:
    template <std::size_t bytes>
    void turn(const std::uint8_t* from, std::uint8_t* to, std::size_t stride, int count) const;
    // Turns pixels of any size: floats of several channels.
    void turn_wide(const std::uint8_t* from, std::uint8_t* to, std::size_t stride, int count) const;

    Scratch memory_, band_;
    std::uint8_t* next_ = nullptr;         // place of the next stored row
    std::size_t before_ = 0, stored_ = 0;  // bytes of a stored row before the part, and in it
    std::size_t pixel_bytes_ = 4;
    int width_ = 0, height_ = 0;                              // displayed
    std::ptrdiff_t first_ = 0, to_right_ = 0, to_below_ = 0;  // place of the displayed part's first pixel; its steps
};

}  // namespace headrace
