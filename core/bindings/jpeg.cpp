#include "jpeg/jpeg.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "array_sink.hpp"
#include "bindings.hpp"
#include "common/fault.hpp"
#include "jpeg/orientation.hpp"
#include "png/png.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

using Box = std::tuple<int, int, int, int>;  // left, top, right, bottom
using Pixels = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<3>>;

class NoSink final : public RowSink {
public:
    void take(const std::uint8_t*, std::size_t, int) override {}
};

Pixels array_of(std::uint8_t* memory, int height, int width) {
    const nb::capsule owner(memory, [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
    return Pixels(memory, {static_cast<std::size_t>(height), static_cast<std::size_t>(width), 4}, owner);
}

JpegPath path_named(const std::string& name) {
    if (name == "auto") return JpegPath::choose;
    if (name == "native" || name == "fast") return JpegPath::native;
    if (name == "libjpeg") return JpegPath::libjpeg;
    throw nb::value_error(("expected path auto, native, fast or libjpeg, got " + name).c_str());
}

// One decoder per level and path, so that tests and benchmarks that alternate keep all decoders warm.
JpegDecoder& decoder_for(Level level, JpegPath path) {
    thread_local std::unique_ptr<JpegDecoder> decoders[kLevels][3];
    auto& decoder = decoders[static_cast<int>(level)][static_cast<int>(path)];
    if (!decoder) decoder = std::make_unique<JpegDecoder>(level, path);
    return *decoder;
}

void check_window(const Box& window, int width, int height) {
    const auto [left, top, right, bottom] = window;
    if (left >= 0 && top >= 0 && left < right && top < bottom && right <= width && bottom <= height) return;
    throw nb::value_error(("expected a window (left, top, right, bottom) inside the image of " + std::to_string(width) +
                           "x" + std::to_string(height))
                              .c_str());
}

std::tuple<int, Pixels> decode_jpeg(const nb::bytes& data, int eighths, const std::optional<Box>& window,
                                    const std::string& path, const std::string& level) {
    if (eighths != 1 && eighths != 2 && eighths != 4 && eighths != 8) {
        throw nb::value_error(("expected eighths 1, 2, 4 or 8, got " + std::to_string(eighths)).c_str());
    }
    JpegDecoder& decoder = decoder_for(parse_level(level), path_named(path));
    try {
        const JpegInfo& info = decoder.open({static_cast<const std::uint8_t*>(data.data()), data.size()}, {}, false);
        const int width = JpegDecoder::scaled(info.width, eighths), height = JpegDecoder::scaled(info.height, eighths);
        const Box box = window.value_or(Box{0, 0, width, height});
        check_window(box, width, height);
        const auto [left, top, right, bottom] = box;
        const JpegDecoder::Columns columns = decoder.begin(eighths, left, right);
        ArraySink sink(bottom - top, 4 * static_cast<std::size_t>(columns.count));
        {
            const nb::gil_scoped_release release;
            decoder.decode(top, bottom, sink);
        }
        if (path == "fast" && !decoder.native()) throw nb::value_error("this file was left to libjpeg");
        return {columns.first, array_of(sink.release(), bottom - top, columns.count)};
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
}

// Returns the nanoseconds of one decode, including the header.
std::int64_t time_jpeg(const nb::bytes& data, const std::optional<Box>& window, const std::string& path,
                       const std::string& level) {
    using Clock = std::chrono::steady_clock;
    JpegDecoder& decoder = decoder_for(parse_level(level), path_named(path));
    NoSink sink;
    try {
        const auto since = Clock::now();
        const JpegInfo& info = decoder.open({static_cast<const std::uint8_t*>(data.data()), data.size()}, {}, false);
        const Box box = window.value_or(Box{0, 0, info.width, info.height});
        check_window(box, info.width, info.height);
        const auto [left, top, right, bottom] = box;
        decoder.begin(8, left, right);
        decoder.decode(top, bottom, sink);
        return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - since).count();
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
}

std::optional<int> exif_orientation(const nb::bytes& data, const Limits& limits) {
    const std::span file(static_cast<const std::uint8_t*>(data.data()), data.size());
    if (is_jpeg(file)) return jpeg_orientation(file);
    if (!is_png(file)) return std::nullopt;
    try {
        return png_probe(file, limits, true).orientation;
    } catch (const Fault&) {
        return 1;
    }
}

}  // namespace

void bind_jpeg(nb::module_& m) {
    m.def("exif_orientation", &exif_orientation, nb::arg("data"), nb::arg("limits"),
          "The EXIF orientation of a JPEG or PNG, 1 to 8: 1 if there is no valid one. None for any other file.");
    m.def("decode_jpeg", &decode_jpeg, nb::arg("data"), nb::kw_only(), nb::arg("eighths") = 8,
          nb::arg("window") = nb::none(), nb::arg("path") = "auto", nb::arg("level") = "best",
          "A window (left, top, right, bottom) of the scaled image: its first column, which lies at or before `left`, "
          "and [H, W, 4] uint8 with red, green, blue and a byte that says nothing. Columns outside [left, right) are "
          "not exact. Path \"auto\" is what batches take; \"native\" leaves to libjpeg only what it cannot decode, "
          "\"fast\" "
          "raises there; ValueError.");
    m.def("time_jpeg", &time_jpeg, nb::arg("data"), nb::kw_only(), nb::arg("window") = nb::none(),
          nb::arg("path") = "auto", nb::arg("level") = "best",
          "Nanoseconds that decoding a window takes, its rows dropped; ValueError.");
}

}  // namespace headrace
