// PNG decoder to bands of rows: every colour type and bit depth, interlaced or not, with libdeflate.
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
    bool has_alpha = false;    // an alpha channel; tRNS is not counted
    bool transparent = false;  // an alpha channel or tRNS; set by open
    int orientation = 1;       // EXIF, 1 to 8, from an eXIf chunk before the pixels; png_probe reads it on request
};

// True if the file begins with PNG's signature.
bool is_png(std::span<const std::uint8_t> file);

// Reads the header chunk and, for the orientation, the chunks before the pixels. `file` may be truncated.
// Throws Fault: corrupt, or limit.
PngInfo png_probe(std::span<const std::uint8_t> file, const Limits& limits, bool want_orientation = false);

// Decoder for one thread; reuses scratch memory between images.
class PngDecoder {
public:
    static constexpr int band_rows = 16;

    explicit PngDecoder(Level level = best_level());
    ~PngDecoder();
    PngDecoder(PngDecoder&&) noexcept;
    PngDecoder& operator=(PngDecoder&&) noexcept;

    // Checks the chunks from signature to IEND, critical ones with their CRC. The file must outlive decode().
    // Throws Fault: corrupt, limit, or unsupported (a critical chunk that is not in the PNG standard).
    const PngInfo& open(std::span<const std::uint8_t> file, const Limits& limits);

    // Bytes of a pixel in the layout, after open(). Throws Fault(unsupported) as decode() does.
    int pixel_bytes(Layout layout);

    // Passes rows [top, bottom) to the sink in bands of at most band_rows. Rows below are not inflated.
    //   rgbx8  grey is repeated, palettes are expanded, alpha and tRNS dropped; 16 bits are reduced to the high byte
    //   raw8   one byte per pixel: palette indices unchanged, grey of 1, 2, 4 bits scaled to 0...255
    //   raw16  16-bit grey in native byte order
    //   samples  all channels of the file, including alpha (tRNS is dropped), 16 bits in native byte order; grey of 1,
    //            2, 4 bits scaled to 0...255, palettes expanded to RGB bytes
    // Throws Fault: corrupt, view (rows outside the image), or unsupported (the image does not have this layout).
    void decode(int top, int bottom, Layout layout, RowSink& sink);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace headrace
