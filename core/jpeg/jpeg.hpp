// Windowed, DCT-scaled JPEG decoding: entropy decoding ends with the window's last row, inverse transforms and colour
// conversion are done inside the window only, and a window has the bits of libjpeg-turbo's full decode.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/level.hpp"
#include "common/limits.hpp"
#include "common/rows.hpp"

namespace headrace {

struct JpegInfo {
    int width = 0, height = 0;
    int orientation = 1;  // EXIF, 1 to 8; read only where asked for
    bool grey = false;
    bool progressive = false;
};

bool is_jpeg(std::span<const std::uint8_t> file);

// Who decodes. `native`: ordinary baseline files the decoder of baseline.hpp, all others libjpeg. `choose`: so, but
// libjpeg also those where it is quicker.
enum class JpegPath : std::uint8_t { choose, native, libjpeg };

// One a thread; keeps libjpeg's state and its row buffer between images.
class JpegDecoder {
public:
    explicit JpegDecoder(Level level = best_level(), JpegPath path = JpegPath::choose);
    ~JpegDecoder();
    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    // Reads the header. `file` must stay until decode() returns. Throws Fault: corrupt, limit, unsupported (12-bit,
    // lossless), declined (CMYK and YCCK are left to Pillow).
    const JpegInfo& open(std::span<const std::uint8_t> file, const Limits&, bool want_orientation);

    // As open(), of a file of `file_bytes` of which only the `start` is at hand: nothing can be decoded after it.
    // Throws what open() throws; corrupt or unsupported may then mean that the header goes on beyond `start`.
    const JpegInfo& probe(std::span<const std::uint8_t> start, std::size_t file_bytes, const Limits&,
                          bool want_orientation);

    // Size of the whole image at DCT scale eighths/8 (8, 4, 2 or 1), after open().
    static int scaled(int size, int eighths) { return (size * eighths + 7) / 8; }

    struct Columns {
        int first, count;
    };
    // Chooses the columns to decode so that [left, right) has the bits of a full decode: these, and some around them.
    // Coordinates are those of the scaled image.
    Columns begin(int eighths, int left, int right);
    // Rows [top, bottom) of the columns that begin() returned, as RGBX bytes in bands.
    void decode(int top, int bottom, RowSink& sink);
    // Whether the last decode() went without libjpeg from begin to end.
    bool native() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace headrace
