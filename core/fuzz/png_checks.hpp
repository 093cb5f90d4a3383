// Properties of any PNG file: levels agree, and a window equals the same part of the whole.
#pragma once

#include "common/limits.hpp"
#include "fuzz/input.hpp"
#include "fuzz/picture.hpp"
#include "png/png.hpp"

namespace headrace::fuzz {

// Rows of a window, in 256ths of the image.
struct RowRange {
    std::uint8_t top, bottom;
};

inline Picture decode_png(Bytes file, PngDecoder& decoder, Layout layout, RowRange range) {
    static const Limits limits{.max_pixels = 1 << 14, .max_png_chunk_bytes = 1 << 16};
    Picture picture;
    try {
        const PngInfo& info = decoder.open(file, limits);
        const PngInfo probed = png_probe(file, limits);
        require(probed.width == info.width && probed.height == info.height, "the probe's size is the file's");
        const int top = range.top * info.height / 256;
        const int bottom = std::max(top + 1, (range.bottom + 1) * info.height / 256);
        picture.width = info.width;
        picture.height = bottom - top;
        static const int samples[] = {1, 0, 3, 3, 2, 0, 4};
        const int own = samples[info.color_type] * (info.bit_depth == 16 ? 2 : 1);
        picture.pixel_bytes = layout == Layout::rgbx8     ? 4
                              : layout == Layout::raw16   ? 2
                              : layout == Layout::samples ? own
                                                          : 1;
        PictureSink sink(picture, 0);
        decoder.decode(top, bottom, layout, sink);
        require(picture.bytes.size() == static_cast<std::size_t>(picture.pixel_bytes) * picture.width * picture.height,
                "as many rows as were asked for");
    } catch (const Fault& fault) {
        picture.fault = fault.code;
        picture.why = fault.what();
    }
    return picture;
}

inline void check_png(Bytes file, RowRange range) {
    static PngDecoder scalar(Level::scalar), best(best_level());
    if (range.top > range.bottom) std::swap(range.top, range.bottom);
    for (const Layout layout : {Layout::rgbx8, Layout::raw8, Layout::raw16, Layout::samples}) {
        const Picture whole = decode_png(file, scalar, layout, {0, 255});
        require_same(whole, decode_png(file, best, layout, {0, 255}), "best level against scalar");
        const Picture part = decode_png(file, best, layout, range);
        require_same(decode_png(file, scalar, layout, range), part, "best level against scalar in a window");
        if (whole.fault) continue;  // the corruption may be below the window
        const int top = range.top * whole.height / 256;
        require_same(cut(whole, 0, top, whole.width, top + part.height), part, "a window against the whole");
    }
}

}  // namespace headrace::fuzz
