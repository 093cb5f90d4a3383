// Rewriting a JPEG: a file that is rewritten decodes to the same pixels as before, at every scale and interval, and has
// the interval; a file that the decoder refuses is refused or stays.
#include <optional>

#include "common/limits.hpp"
#include "fuzz/input.hpp"
#include "fuzz/picture.hpp"
#include "jpeg/jpeg.hpp"
#include "pack/transcode.hpp"

namespace headrace::fuzz {
namespace {

// Small, for thousands of runs per second.
const Limits kLimits{.max_pixels = 1 << 14, .max_jpeg_scans = 12};

Picture decode(Bytes file, JpegDecoder& decoder) {
    Picture picture;
    try {
        const JpegInfo& info = decoder.open(file, kLimits, true);
        decoder.begin(8, 0, info.width);
        picture.width = info.width;
        picture.height = info.height;
        picture.pixel_bytes = 4;
        PictureSink sink(picture, 0);
        decoder.decode(0, info.height, sink);
    } catch (const Fault& fault) {
        picture.fault = fault.code;
        picture.why = fault.what();
    }
    return picture;
}

void run(Input input) {
    static JpegDecoder libjpeg(Level::scalar, JpegPath::libjpeg), native(best_level(), JpegPath::native);
    const int asked = input.byte();  // 0: chosen
    const Bytes file = input.rest();
    const Picture before = decode(file, libjpeg);
    std::optional<std::vector<std::uint8_t>> out;
    try {
        out = transcode_jpeg(file, kLimits, asked == 0 ? std::nullopt : std::optional<int>(asked));
    } catch (const Fault&) {
        require(before.fault.has_value(), "a file that decodes is no fault");
        return;
    }
    if (!out) return;
    require_same(before, decode(*out, libjpeg), "the new file against the old one");
    require_same(before, decode(*out, native), "the new file by the native decoder");
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
