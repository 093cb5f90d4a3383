// Streams rows of a source window into an output, in which each pixel is the source's pixel under its centre or its
// first corner (Taps::nearest). Values are copied, never blended, so pixels may be anything: colours, classes,
// distances.
#pragma once

#include <cstdint>
#include <vector>

#include "common/rows.hpp"
#include "resample/resampler.hpp"
#include "resample/taps.hpp"

namespace headrace {

class NearestSampler final : public RowSink {
public:
    // The next rows are source rows `first_row`, first_row + 1, … of pixels of `pixel_bytes` (1, 2, 4 or 12), from
    // column `first_column` on. They must cover reach_of(window, filter).
    void start(const Window&, Filter filter, int pixel_bytes, int first_row, int first_column, PixelRows& out);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;

private:
    void pick(const std::uint8_t* row);

    PixelRows* out_ = nullptr;
    int pixel_bytes_ = 4, height_ = 0, next_row_ = 0, first_column_ = 0, next_output_ = 0;
    Taps across_, down_;
    std::vector<std::uint8_t> line_;
};

}  // namespace headrace
