// Reading of one sample's image: its bytes, its header, and its rows.
#pragma once

#include "batch/reader.hpp"
#include "batch/turned_rows.hpp"
#include "jpeg/jpeg.hpp"
#include "png/png.hpp"
#include "raw/y4m.hpp"

namespace headrace {

// Probed image.
struct Image {
    enum class Kind { jpeg, png, y4m, pixels } kind = Kind::pixels;
    int width = 0, height = 0;  // as displayed
    int orientation = 1;        // EXIF, 1 to 8, from stored to displayed rows
    Memory pixels{};            // the caller's, or those of a PGM or PPM in its file's bytes
    bool big_endian = false;    // of 16-bit `pixels`
    bool planar = false;        // three planes of bytes, red first, instead of interleaved `pixels`
    PngInfo png{};
    std::size_t bytes = 0;
    std::int64_t whole_bytes = 0;  // memory of a decoder that cannot stream rows; 0 if it can

    // True if rows are RGBX in every layout.
    bool is_color() const { return kind == Kind::jpeg || kind == Kind::y4m; }
    // Upper bound of the memory that turns this image, decoded at a DCT scale.
    std::int64_t turning_bytes(int eighths) const {
        const std::int64_t pixel_bytes = kind == Kind::png && png.bit_depth == 16 ? 8 : 4;
        return orientation == 1
                   ? 0
                   : pixel_bytes * JpegDecoder::scaled(width, eighths) * JpegDecoder::scaled(height, eighths);
    }
};

// Returns the image as a view sees it: its rows and columns swapped if the view is transposed.
Image as_viewed(Image image, const View& view);
// Finds cached pixels. ImageReader looks up cached bytes of files.
std::optional<Store::Item> find_cached(const FieldItem& item, bool counts);
// Returns the size of the image whose pixels are cached.
Image image_of(const Store::Item& cached);

// One per thread; reuses decoders and buffers between images.
class ImageReader {
public:
    ImageReader(Level level, const Limits& limits, Retries& retries, StageClock& clock)
        : limits_(limits), clock_(clock), reader_(retries), jpeg_(level), png_(level), y4m_(level), level_(level) {}

    // Reads from the cache, or else from the source and caches the bytes if the cut is `file`. Valid until the next
    // call.
    std::span<const std::uint8_t> read(Job& job, const Ranges& ranges, const CacheUse& cache, int sample);
    // Reads an image and opens it for send().
    Image probe(const FieldItem& item);
    // Reads only the image's header.
    Image measure(const FieldItem& item);
    // Begins to decode at this scale. Returns the columns of the rows to come, which include the reach's: all of an
    // upright PNG.
    JpegDecoder::Columns begin(const Image& image, int eighths, const Reach& reach);
    // Sends the reach's rows as displayed. The layout is that of PNGs; a JPEG's and a Y4M's rows are RGBX, and an
    // array's are its own for all layouts but rgbx8.
    void send(const Image& image, Layout layout, RowSink& sink);

private:
    std::span<const std::uint8_t> read_cached(const Job& job, const CacheUse& cache, int sample);
    Reader::Start fetch(const FieldItem& item, std::size_t most);
    Image open(const Reader::Start& start, const ImageField& field, bool for_pixels);
    void send_stored(const Image& image, Layout layout, RowSink& sink);
    void send_pixels(const Image& image, Layout layout, int top, int bottom, RowSink& sink);
    void send_planes(const Image& image, int top, int bottom, RowSink& sink);

    const Limits& limits_;
    StageClock& clock_;
    Reader reader_;
    JpegDecoder jpeg_;
    PngDecoder png_;
    Y4mDecoder y4m_;
    Level level_;
    JpegDecoder::Columns columns_{};  // of the stored rows
    Reach shown_{}, stored_{};        // reach of the current image, at its scale
    TurnedRows turned_;
    Scratch file_, band_, tail_;
};

}  // namespace headrace
