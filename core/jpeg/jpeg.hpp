// Windowed, DCT-scaled JPEG decoder: entropy decoding stops at the window's last row, inverse transforms and colour
// conversion run inside the window only, and a window is bit-exact with libjpeg-turbo's full decode.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/level.hpp"
#include "common/limits.hpp"
#include "common/rows.hpp"
#include "jpeg/frame.hpp"

namespace headrace {

struct JpegInfo {
    int width = 0, height = 0;
    int orientation = 1;  // EXIF, 1 to 8; read only on request
    bool grey = false;
    bool progressive = false;
};

bool is_jpeg(std::span<const std::uint8_t> file);

// Choice of decoder. `native`: the decoder of baseline.hpp for ordinary baseline files, libjpeg for all others.
// `choose`: the same, but libjpeg also for files that it decodes faster.
enum class JpegPath : std::uint8_t { choose, native, libjpeg };

// Decoder for one thread; reuses libjpeg's state and its row buffer between images.
class JpegDecoder {
public:
    explicit JpegDecoder(Level level = best_level(), JpegPath path = JpegPath::choose);
    ~JpegDecoder();
    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    // Reads the header. `file` must stay valid until decode() returns. Throws Fault: corrupt, limit, unsupported
    // (12-bit, lossless), declined (CMYK and YCCK are left to Pillow).
    const JpegInfo& open(std::span<const std::uint8_t> file, const Limits&, bool want_orientation);

    // Like open(), for the `start` of a file of `file_bytes` bytes: it cannot be decoded afterwards. Throws the errors
    // of open(); corrupt or unsupported may mean that the header extends beyond `start`.
    const JpegInfo& probe(std::span<const std::uint8_t> start, std::size_t file_bytes, const Limits&,
                          bool want_orientation);

    // Size of the whole image at DCT scale eighths/8 (8, 4, 2 or 1), after open().
    static int scaled(int size, int eighths) { return (size * eighths + 7) / 8; }

    struct Columns {
        int first, count;
    };
    // Selects the columns to decode so that [left, right) is bit-exact with a full decode: these, and some around them.
    // Coordinates are in the scaled image.
    Columns begin(int eighths, int left, int right);
    // Passes rows [top, bottom) of the columns that begin() returned to the sink, as RGBX bytes in bands.
    void decode(int top, int bottom, RowSink& sink);
    // Decodes the component planes of the whole image before chroma upsampling, after open(): luma first, rows without
    // padding, chroma sizes rounded up. Throws Fault: corrupt, limit.
    void decode_planes(std::uint8_t* out);
    // Sampling of these planes, after open(). Throws Fault(declined) for RGB and an unusual one.
    Sampling sampling() const;
    // True if the last decode() did not use libjpeg.
    bool native() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace headrace
