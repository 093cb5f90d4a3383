// JPEG: the native decoder has the bits and errors of libjpeg-turbo, at every level; a window, at every DCT scale,
// equals the full decode; and probing a prefix with the header agrees with the whole file.
#include <array>

#include "common/limits.hpp"
#include "fuzz/input.hpp"
#include "fuzz/picture.hpp"
#include "jpeg/jpeg.hpp"

namespace headrace::fuzz {
namespace {

// Small, for thousands of runs per second.
const Limits kLimits{.max_pixels = 1 << 14, .max_jpeg_scans = 12};
constexpr std::array kScales = {8, 4, 2, 1};

// In 256ths of the image, so that a change of its size preserves their meaning.
struct Window {
    std::uint8_t left, top, right, bottom;
};
constexpr Window kWhole{0, 0, 255, 255};

int low(std::uint8_t part, int size) { return part * size / 256; }
int high(std::uint8_t part, int size) { return (part + 1) * size / 256; }

struct Edges {
    int left, top, right, bottom;
};
Edges edges_of(Window w, int width, int height) {
    const int left = low(w.left, width), top = low(w.top, height);
    return {left, top, std::max(left + 1, high(w.right, width)), std::max(top + 1, high(w.bottom, height))};
}

Picture decode(Bytes file, JpegDecoder& decoder, int eighths, Window window) {
    Picture picture;
    try {
        const JpegInfo& info = decoder.open(file, kLimits, true);
        require(info.orientation >= 1 && info.orientation <= 8, "an orientation of 1 to 8");
        const Edges e =
            edges_of(window, JpegDecoder::scaled(info.width, eighths), JpegDecoder::scaled(info.height, eighths));
        const auto columns = decoder.begin(eighths, e.left, e.right);
        require(columns.first <= e.left && columns.first + columns.count >= e.right, "the columns asked for");
        picture.width = e.right - e.left;
        picture.height = e.bottom - e.top;
        picture.pixel_bytes = 4;
        PictureSink sink(picture, e.left - columns.first);
        decoder.decode(e.top, e.bottom, sink);
        require(picture.bytes.size() == 4u * picture.width * picture.height, "as many rows as were asked for");
    } catch (const Fault& fault) {
        picture.fault = fault.code;
        picture.why = fault.what();
    }
    return picture;
}

void require_probe(Bytes file, JpegDecoder& decoder, std::size_t bytes) {
    JpegInfo whole, part;
    try {
        whole = decoder.open(file, kLimits, true);
        part = decoder.probe(file.first(bytes), file.size(), kLimits, true);
    } catch (const Fault&) {  // a corrupt file, or a longer header
        return;
    }
    require(part.width == whole.width && part.height == whole.height && part.orientation == whole.orientation,
            "the beginning's header is the whole file's");
}

void run(Input input) {
    static JpegDecoder libjpeg(Level::scalar, JpegPath::libjpeg), scalar(Level::scalar, JpegPath::native),
        best(best_level(), JpegPath::native), usual(best_level());
    const int eighths = kScales[input.byte() % kScales.size()];
    Window window{input.byte(), input.byte(), input.byte(), input.byte()};
    if (window.left > window.right) std::swap(window.left, window.right);
    if (window.top > window.bottom) std::swap(window.top, window.bottom);
    const Bytes file = input.rest();

    require_probe(file, usual, file.size() * window.right / 255);
    const Picture whole = decode(file, libjpeg, 8, kWhole);
    require_same(whole, decode(file, scalar, 8, kWhole), "scalar against libjpeg");
    require_same(whole, decode(file, best, 8, kWhole), "best level against libjpeg");
    const Picture scaled = eighths == 8 ? whole : decode(file, libjpeg, eighths, kWhole);
    if (scaled.fault) {  // the corruption may be outside the window, so only decode without comparing
        decode(file, usual, eighths, window);
        decode(file, best, 8, window);
        return;
    }
    const Edges e = edges_of(window, scaled.width, scaled.height);
    const Picture part = cut(scaled, e.left, e.top, e.right, e.bottom);
    require_same(part, decode(file, libjpeg, eighths, window), "libjpeg's window against its full decode");
    require_same(part, decode(file, usual, eighths, window), "a window against the full decode");
    require_same(part, decode(file, best, eighths, window), "the best level's window against the full decode");
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
