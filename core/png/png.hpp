// PNG to bands of rows: every colour type and bit depth, interlaced or not, over libdeflate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/limits.hpp"
#include "common/rows.hpp"
#include "png/unfilter.hpp"

namespace headrace {

struct PngInfo {
    int width = 0;
    int height = 0;
    int bit_depth = 0;
    int color_type = 0;  // 0 grey, 2 RGB, 3 palette, 4 grey + alpha, 6 RGBA
    bool interlaced = false;
    bool has_alpha = false;  // an alpha channel; tRNS is not counted
    int orientation = 1;     // EXIF, 1 to 8, of an eXIf chunk before the pixels; png_probe reads it where asked for
};

// Does the file begin with PNG's signature?
bool is_png(std::span<const std::uint8_t> file);

// Reads the header chunk and, for the orientation, those before the pixels. `file` may be a file's beginning.
// Throws Fault: corrupt, or limit.
PngInfo png_probe(std::span<const std::uint8_t> file, const Limits& limits, bool want_orientation = false);

// Decodes one image after another. One a thread: scratch memory is kept between images.
class PngDecoder {
public:
    static constexpr int band_rows = 16;

    explicit PngDecoder(Level level = best_level());
    ~PngDecoder();
    PngDecoder(PngDecoder&&) noexcept;
    PngDecoder& operator=(PngDecoder&&) noexcept;

    // Checks the chunks from signature to IEND, critical ones with their CRC. The file must outlive decode().
    // Throws Fault: corrupt, limit, or unsupported (a critical chunk that PNG's standard does not know).
    const PngInfo& open(std::span<const std::uint8_t> file, const Limits& limits);

    // Hands rows [top, bottom) to the sink in bands of at most band_rows. What lies below is not unpacked.
    //   rgbx8  grey is repeated, palettes are looked up, alpha and tRNS dropped; of 16 bits the high byte is kept
    //   raw8   one byte a pixel: palette indices as they are, grey of 1, 2, 4 bits scaled to 0...255
    //   raw16  16-bit grey in the machine's byte order
    //   samples  each channel of the file, alpha too (tRNS is dropped), 16 bits in the machine's byte order; grey of 1,
    //            2, 4 bits scaled to 0...255, palettes looked up as RGB of bytes
    // Throws Fault: corrupt, view (rows outside the image), or unsupported (the layout does not suit the image).
    void decode(int top, int bottom, Layout layout, RowSink& sink);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace headrace
