// PGM, PPM, NPY and Y4M: a window of any file, equals the same part of the whole, at every
// level, and probing a prefix agrees with the whole file. The file is of exactly its size, so that a read beyond it is
// detected.
#include <vector>

#include "fuzz/input.hpp"
#include "fuzz/picture.hpp"
#include "raw/npy.hpp"
#include "raw/pnm.hpp"
#include "raw/y4m.hpp"

namespace headrace::fuzz {
namespace {

const Limits kLimits{.max_pixels = 1 << 14};

struct Part {
    std::uint8_t low, high;  // in 256ths

    int from(int size) const { return low * size / 256; }
    int to(int size) const { return std::max(from(size) + 1, (high + 1) * size / 256); }
};

Picture decode(Bytes file, Level level, Part across, Part down) {
    Picture picture;
    try {
        Y4mDecoder decoder(level);
        const Y4mInfo& info = decoder.open(file, kLimits);
        const int left = across.from(info.width), top = down.from(info.height);
        picture.width = across.to(info.width) - left;
        picture.height = down.to(info.height) - top;
        picture.pixel_bytes = 4;
        PictureSink sink(picture, 0);
        decoder.decode(left, top, left + picture.width, top + picture.height, sink);
    } catch (const Fault& fault) {
        picture.fault = fault.code;
        picture.why = fault.what();
    }
    return picture;
}

void check_pnm(Bytes file) {
    try {
        const PnmInfo info = read_pnm(file, file.size(), kLimits);
        const std::size_t pixels = static_cast<std::size_t>(info.width) * info.height;
        require(info.offset + pixels * info.channels * info.sample_bytes == file.size(),
                "pixels to the end of the file");
        require(read_pnm(file.first(info.offset), file.size(), kLimits).width == info.width, "the header's size");
    } catch (const Fault&) {
    }
}

void check_npy(Bytes file) {
    try {
        const NpyInfo info = read_npy(file, file.size());
        require(info.offset <= file.size(), "a header in the file");
        require(read_npy(file.first(info.offset), file.size()).shape == info.shape, "the header's shape");
    } catch (const Fault&) {
    }
}

void run(Input input) {
    Part across{input.byte(), input.byte()}, down{input.byte(), input.byte()};
    if (across.low > across.high) std::swap(across.low, across.high);
    if (down.low > down.high) std::swap(down.low, down.high);
    const std::vector<std::uint8_t> copy(input.rest().begin(), input.rest().end());
    const Bytes file(copy);
    if (is_pnm(file)) return check_pnm(file);
    if (is_npy(file)) return check_npy(file);
    if (!is_y4m(file)) return;
    const Picture whole = decode(file, Level::scalar, {0, 255}, {0, 255});
    require_same(whole, decode(file, best_level(), {0, 255}, {0, 255}), "best level against scalar");
    if (whole.fault) return;
    const int left = across.from(whole.width), top = down.from(whole.height);
    const Picture part = cut(whole, left, top, across.to(whole.width), down.to(whole.height));
    require_same(part, decode(file, Level::scalar, across, down), "a window against the whole");
    require_same(part, decode(file, best_level(), across, down), "the best level's window against the whole");
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
