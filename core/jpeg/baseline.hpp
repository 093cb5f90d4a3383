// Decodes windows of baseline JPEGs from first bit to pixel, with the bits of libjpeg-turbo. JpegDecoder chooses
// between it and libjpeg; benchmarks/jpeg_decode.py compares them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/level.hpp"
#include "common/rows.hpp"
#include "jpeg/entropy.hpp"
#include "jpeg/frame.hpp"
#include "jpeg/pixels.hpp"
#include "jpeg/planes.hpp"

namespace headrace {

// One a thread; keeps its tables and buffers between images.
class BaselineDecoder {
public:
    explicit BaselineDecoder(Level level) : kernels_(pixel_kernels(level)) {}

    // Fill it before begin(); what its scan points at stays until decode() returns.
    BaselineFrame& frame() { return frame_; }
    // Decodes `count` columns from `first`, which begins an MCU; the last two may differ from the full image's, and so
    // may the first two. False: left to libjpeg, which without `at_any_cost` includes small files with codes of their
    // own.
    bool begin(int first, int count, bool at_any_cost);
    // Rows [top, bottom) as RGBX bytes in bands. Returns how many it handed on; fewer than asked for where the data are
    // damaged or strange, and then those that it did hand on are right.
    int decode(int top, int bottom, RowSink& sink);

private:
    bool decode_mcu_row(int mcu_row);
    void transform(int mcu_row, int mcu, int mcus);
    void repeat_edges(int mcu_row);
    void send(int top, int bottom, RowSink& sink);
    PixelRow pixel_row(int y, std::uint8_t* out);

    const PixelKernels& kernels_;
    BaselineFrame frame_;
    EntropyDecoder entropy_;
    Planes planes_;
    int count_ = 0;                                            // columns
    int mcus_across_ = 0, mcus_before_ = 0, mcus_inside_ = 0;  // of the image, left of the window, in it
    std::vector<std::int16_t> coefficients_;
    std::vector<BlockJob> jobs_;
    std::vector<std::uint8_t> band_;
};

}  // namespace headrace
