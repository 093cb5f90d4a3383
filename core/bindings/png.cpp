#include "png/png.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>

#include "array_sink.hpp"
#include "bindings.hpp"
#include "common/fault.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

std::span<const std::uint8_t> bytes_of(const nb::bytes& data) {
    return {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()};
}

Layout layout_named(const std::string& name) {
    if (name == "rgbx8") return Layout::rgbx8;
    if (name == "raw8") return Layout::raw8;
    if (name == "raw16") return Layout::raw16;
    throw nb::value_error(("expected layout rgbx8, raw8 or raw16, got " + name).c_str());
}

nb::ndarray<nb::numpy> array_of(std::uint8_t* memory, std::size_t height, std::size_t width, Layout layout) {
    const nb::capsule owner(memory, [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
    if (layout == Layout::rgbx8)
        return nb::ndarray<nb::numpy>(memory, {height, width, 4}, owner, {}, nb::dtype<std::uint8_t>());
    const auto type = layout == Layout::raw16 ? nb::dtype<std::uint16_t>() : nb::dtype<std::uint8_t>();
    return nb::ndarray<nb::numpy>(memory, {height, width}, owner, {}, type);
}

std::size_t pixel_bytes(Layout layout) { return layout == Layout::rgbx8 ? 4 : layout == Layout::raw16 ? 2 : 1; }

void decode_without_gil(PngDecoder& decoder, int top, int bottom, Layout layout, RowSink& sink) {
    const nb::gil_scoped_release release;
    decoder.decode(top, bottom, layout, sink);
}

// One decoder per level, so that tests and benchmarks that alternate keep all decoders warm.
PngDecoder& decoder_for(Level level) {
    thread_local std::unique_ptr<PngDecoder> decoders[kLevels];
    auto& decoder = decoders[static_cast<int>(level)];
    if (!decoder) decoder = std::make_unique<PngDecoder>(level);
    return *decoder;
}

nb::ndarray<nb::numpy> decode_png(const nb::bytes& data, const std::string& layout_name, int top, int bottom,
                                  const std::string& level, const Limits& limits) {
    const Layout layout = layout_named(layout_name);
    PngDecoder& decoder = decoder_for(parse_level(level));
    try {
        const PngInfo& info = decoder.open(bytes_of(data), limits);
        if (bottom < 0) bottom = info.height;
        const int height = std::clamp(bottom - top, 0, info.height);
        ArraySink sink(height, info.width * pixel_bytes(layout));
        decode_without_gil(decoder, top, bottom, layout, sink);
        return array_of(sink.release(), height, info.width, layout);
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
}

std::tuple<int, int, int, int, bool> probe_png(const nb::bytes& data) {
    try {
        const PngInfo info = png_probe(bytes_of(data), Limits{});
        return {info.width, info.height, info.bit_depth, info.color_type, info.interlaced};
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
}

}  // namespace

void bind_png(nb::module_& m) {
    m.def("probe_png", &probe_png, nb::arg("data"), "Width, height, bit depth, colour type, interlaced; ValueError.");
    m.def(
        "decode_png",
        [](const nb::bytes& data, const std::string& layout, int top, int bottom, const std::string& level,
           std::int64_t max_pixels, std::int64_t max_png_chunk_bytes) {
            Limits limits;
            limits.max_pixels = max_pixels;
            limits.max_png_chunk_bytes = max_png_chunk_bytes;
            return decode_png(data, layout, top, bottom, level, limits);
        },
        nb::arg("data"), nb::arg("layout"), nb::arg("top") = 0, nb::arg("bottom") = -1, nb::kw_only(),
        nb::arg("level") = "best", nb::arg("max_pixels") = Limits{}.max_pixels,
        nb::arg("max_png_chunk_bytes") = Limits{}.max_png_chunk_bytes,
        "Rows [top, bottom) of a PNG: [H, W, 4] or [H, W] uint8, or [H, W] uint16; ValueError.");
}

}  // namespace headrace
