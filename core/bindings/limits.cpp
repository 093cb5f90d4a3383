#include "common/limits.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

namespace {

using Bounds =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::vector<std::string>, double>;

Bounds bounds_of(const Limits& limits) {
    return {limits.max_pixels,       limits.max_jpeg_scans, limits.max_png_chunk_bytes, limits.max_file_bytes,
            limits.max_decode_bytes, limits.formats,        limits.max_decode_s};
}

// Normalizes names to upper case, unique and sorted, so that equal limits compare equal. Throws std::invalid_argument.
std::vector<std::string> known_formats(std::vector<std::string> formats) {
    for (std::string& name : formats) {
        for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        if (name == "EPS") {
            throw std::invalid_argument(
                "formats: expected formats that Pillow decodes by itself, got EPS, for which it runs Ghostscript");
        }
    }
    std::sort(formats.begin(), formats.end());
    formats.erase(std::unique(formats.begin(), formats.end()), formats.end());
    return formats;
}

Limits limits_of(const Bounds& bounds) {
    const auto& [pixels, scans, chunk, file, memory, formats, seconds] = bounds;
    if (!(seconds > 0)) throw std::invalid_argument("max_decode_s: expected more than 0");
    return {pixels, scans, chunk, file, memory, known_formats(formats), seconds};
}

}  // namespace

void bind_limits(nb::module_& m) {
    nb::class_<Limits>(
        m, "Limits",
        "What one image may cost: pixels, scans of a JPEG, bytes of one PNG chunk other than image data, bytes\n"
        "of the file, and bytes of memory for its decoding where that takes a whole image (`max_decode_bytes`, which\n"
        "all threads of a loader share); which formats Pillow may decode (by its names for them), and the seconds that "
        "it may take\n"
        "where it decodes in a process of its own: JPEG2000, and formats beyond the usual ones. Content beyond a "
        "limit\n"
        "is a bad sample, named with the limit. Frozen.")
        .def(
            "__init__",
            [](Limits* self, std::int64_t pixels, std::int64_t scans, std::int64_t chunk, std::int64_t file,
               std::int64_t memory, std::optional<std::vector<std::string>> formats, double seconds) {
                new (self) Limits(
                    limits_of({pixels, scans, chunk, file, memory, formats.value_or(Limits{}.formats), seconds}));
            },
            nb::kw_only(), "max_pixels"_a = Limits{}.max_pixels, "max_jpeg_scans"_a = Limits{}.max_jpeg_scans,
            "max_png_chunk_bytes"_a = Limits{}.max_png_chunk_bytes, "max_file_bytes"_a = Limits{}.max_file_bytes,
            "max_decode_bytes"_a = Limits{}.max_decode_bytes, "formats"_a.none() = nb::none(),
            "max_decode_s"_a = Limits{}.max_decode_s)
        .def_ro("max_pixels", &Limits::max_pixels)
        .def_ro("max_jpeg_scans", &Limits::max_jpeg_scans)
        .def_ro("max_png_chunk_bytes", &Limits::max_png_chunk_bytes)
        .def_ro("max_file_bytes", &Limits::max_file_bytes)
        .def_ro("max_decode_bytes", &Limits::max_decode_bytes)
        .def_prop_ro("formats", [](const Limits& limits) { return nb::tuple(nb::cast(limits.formats)); })
        .def_ro("max_decode_s", &Limits::max_decode_s)
        .def(
            "__eq__", [](const Limits& limits, const Limits& other) { return limits == other; }, nb::is_operator())
        .def("__hash__",
             [](const Limits& limits) {
                 return nb::hash(nb::make_tuple(limits.max_pixels, limits.max_jpeg_scans, limits.max_png_chunk_bytes,
                                                limits.max_file_bytes, limits.max_decode_bytes,
                                                nb::tuple(nb::cast(limits.formats)), limits.max_decode_s));
             })
        .def("__getstate__", bounds_of)
        .def("__setstate__", [](Limits& limits, const Bounds& bounds) { new (&limits) Limits(limits_of(bounds)); });
}

}  // namespace headrace
