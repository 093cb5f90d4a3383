// Conversion of colour to grey, band by band, before resampling.
#pragma once

#include <vector>

#include "common/rows.hpp"

namespace headrace {

// Passes on each RGBX pixel's luma in all three channels: ITU-R 601, rounded like Pillow's convert("L").
class GreySink final : public RowSink {
public:
    // `sink` receives rows of `width` pixels until the next start().
    void start(RowSink& sink, int width);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;

private:
    RowSink* sink_ = nullptr;
    std::size_t width_ = 0;
    std::vector<std::uint8_t> band_;
};

}  // namespace headrace
