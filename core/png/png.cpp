#include "png/png.hpp"

#include <algorithm>
#include <string>

#include "common/fault.hpp"
#include "common/scratch.hpp"
#include "png/adam7.hpp"
#include "png/chunks.hpp"
#include "png/inflate.hpp"
#include "png/row_decoder.hpp"

namespace headrace {

bool is_png(std::span<const std::uint8_t> file) { return png::has_signature(file); }

PngInfo png_probe(std::span<const std::uint8_t> file, const Limits& limits, bool want_orientation) {
    PngInfo info = png::read_header(file, limits);
    if (want_orientation) info.orientation = png::read_orientation(file);
    return info;
}

namespace {

// Bytes of a packed row in the file, including its filter byte.
std::size_t raw_row_bytes(const PngInfo& info) { return 1 + png::packed_row_bytes(info, info.width); }

std::size_t raw_bytes(const PngInfo& info) {
    return info.interlaced ? png::adam7_bytes(info) : raw_row_bytes(info) * info.height;
}

}  // namespace

struct PngDecoder::State {
    explicit State(Level level) : rows(level) {}

    void decode_plain(int top, int bottom, RowSink& sink);
    void decode_interlaced(int top, int bottom, RowSink& sink);
    std::size_t stride() const {
        return static_cast<std::size_t>(chunks.info.width) * rows.pixel_bytes() + png::RowDecoder::slack_bytes;
    }

    png::Chunks chunks;
    png::Inflater inflater;
    png::RowDecoder rows;
    png::Adam7 adam7;
    Scratch pixels;  // one band, or the whole image if interlaced
};

void PngDecoder::State::decode_plain(int top, int bottom, RowSink& sink) {
    const PngInfo& info = chunks.info;
    const std::size_t row_bytes = raw_row_bytes(info);
    const std::uint8_t* raw = inflater.inflate(chunks, row_bytes * bottom, row_bytes * info.height);
    std::uint8_t* const band = pixels.reserve(std::min(band_rows, bottom - top) * stride());
    rows.begin(info.width);
    rows.skip(raw, row_bytes, top);
    raw += row_bytes * top;
    for (int y = top; y < bottom;) {
        const int count = std::min(band_rows, bottom - y);
        rows.take(raw, row_bytes, count, band, stride());
        sink.take(band, stride(), count);
        raw += row_bytes * count;
        y += count;
    }
}

void PngDecoder::State::decode_interlaced(int top, int bottom, RowSink& sink) {
    const PngInfo& info = chunks.info;
    const std::size_t bytes = raw_bytes(info);
    const std::uint8_t* const raw = inflater.inflate(chunks, bytes, bytes);
    std::uint8_t* const image = pixels.reserve(info.height * stride());
    adam7.decode(info, raw, rows, image, stride());
    for (int y = top; y < bottom; y += band_rows) {
        sink.take(image + y * stride(), stride(), std::min(band_rows, bottom - y));
    }
}

PngDecoder::PngDecoder(Level level) : state_(std::make_unique<State>(level)) {}
PngDecoder::~PngDecoder() = default;
PngDecoder::PngDecoder(PngDecoder&&) noexcept = default;
PngDecoder& PngDecoder::operator=(PngDecoder&&) noexcept = default;

const PngInfo& PngDecoder::open(std::span<const std::uint8_t> file, const Limits& limits) {
    png::Chunks& chunks = state_->chunks;
    png::read_chunks(file, limits, chunks);
    png::check_can_hold(chunks, raw_bytes(chunks.info));
    return chunks.info;
}

int PngDecoder::pixel_bytes(Layout layout) {
    state_->rows.set(state_->chunks, layout);
    return state_->rows.pixel_bytes();
}

void PngDecoder::decode(int top, int bottom, Layout layout, RowSink& sink) {
    const PngInfo& info = state_->chunks.info;
    if (top < 0 || top >= bottom || bottom > info.height) {
        throw Fault(Code::view, "PNG: expected rows within 0 to " + std::to_string(info.height) + ", got " +
                                    std::to_string(top) + " to " + std::to_string(bottom));
    }
    state_->rows.set(state_->chunks, layout);
    if (info.interlaced) {
        state_->decode_interlaced(top, bottom, sink);
    } else {
        state_->decode_plain(top, bottom, sink);
    }
}

}  // namespace headrace
