#include "common/limits.hpp"

#include <cstdint>
#include <tuple>

#include <nanobind/operators.h>
#include <nanobind/stl/tuple.h>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

namespace {

std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t> bounds_of(const Limits& limits) {
    return {limits.max_pixels, limits.max_jpeg_scans, limits.max_png_chunk_bytes, limits.max_file_bytes};
}

}  // namespace

void bind_limits(nb::module_& m) {
    nb::class_<Limits>(
        m, "Limits",
        "What one image may cost: pixels, scans of a JPEG, bytes of one PNG chunk other than image data, and\n"
        "bytes of the file. Content beyond a limit is a bad sample, named with the limit. Frozen.")
        .def(
            "__init__",
            [](Limits* self, std::int64_t pixels, std::int64_t scans, std::int64_t chunk, std::int64_t file) {
                new (self) Limits{pixels, scans, chunk, file};
            },
            nb::kw_only(), "max_pixels"_a = Limits{}.max_pixels, "max_jpeg_scans"_a = Limits{}.max_jpeg_scans,
            "max_png_chunk_bytes"_a = Limits{}.max_png_chunk_bytes, "max_file_bytes"_a = Limits{}.max_file_bytes)
        .def_ro("max_pixels", &Limits::max_pixels)
        .def_ro("max_jpeg_scans", &Limits::max_jpeg_scans)
        .def_ro("max_png_chunk_bytes", &Limits::max_png_chunk_bytes)
        .def_ro("max_file_bytes", &Limits::max_file_bytes)
        .def(
            "__eq__", [](const Limits& limits, const Limits& other) { return limits == other; }, nb::is_operator())
        .def("__hash__", [](const Limits& limits) { return nb::hash(nb::cast(bounds_of(limits))); })
        .def("__getstate__", bounds_of)
        .def("__setstate__",
             [](Limits& limits, std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t> state) {
                 std::apply([&](auto... bounds) { new (&limits) Limits{bounds...}; }, state);
             });
}

}  // namespace headrace
