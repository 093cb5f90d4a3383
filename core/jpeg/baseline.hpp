// Native decoder for windows of baseline JPEGs, bit-exact with libjpeg-turbo. JpegDecoder selects between it and
// libjpeg; benchmarks/jpeg_decode.py compares them.
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

// Decoder for one thread; reuses tables and buffers between images.
class BaselineDecoder {
public:
    explicit BaselineDecoder(Level level) : kernels_(pixel_kernels(level)) {}

    // Fill it before begin(); its scan must stay valid until decode() returns.
    BaselineFrame& frame() { return frame_; }
    // Prepares to decode `count` columns from `first`, which begins an MCU; the first two and last two columns may
    // differ from the full image's. Returns false for files left to libjpeg, which without `at_any_cost` includes small
    // files with custom codes.
    bool begin(int first, int count, bool at_any_cost);
    // Passes rows [top, bottom) to the sink as RGBX bytes in bands. Returns the number of rows; fewer than requested if
    // the data is corrupt or unusual, and then the rows passed so far are correct.
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
