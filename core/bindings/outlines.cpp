#include "dense/outlines.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cmath>

#include "bindings.hpp"
#include "numpy.hpp"
#include "resample/taps.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

namespace {

template <typename T>
using Values = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Masks = nb::ndarray<std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<const T> span_of(const Values<T>& values) {
    return {values.data(), values.size()};
}

constexpr double kFarthestCorner = 2147483648.0;

PickedPixels picked_of(const Values<std::int32_t>& rows, const Values<std::int32_t>& columns, std::size_t height,
                       std::size_t width) {
    const PickedPixels picked{span_of(rows), span_of(columns)};
    if (picked.rows.size() != height || picked.columns.size() != width) throw nb::value_error("masks of another size");
    for (const auto& each : {picked.rows, picked.columns})
        if (!std::is_sorted(each.begin(), each.end()) || (!each.empty() && each.front() < 0))
            throw nb::value_error("expected rows and columns in rising order, none below 0");
    return picked;
}

void paint_polygons(const Masks& masks, const Values<double>& xy, const Values<std::int64_t>& ends,
                    const Values<std::int64_t>& owners, const Values<std::int32_t>& rows,
                    const Values<std::int32_t>& columns) {
    const PickedPixels picked = picked_of(rows, columns, masks.shape(1), masks.shape(2));
    const std::span<const double> corners = span_of(xy);
    if (owners.size() != ends.size()) throw nb::value_error("expected an instance for each polygon");
    for (const double place : corners)  // for larger values, edges overflow to NaN crossings
        if (!(std::abs(place) <= kFarthestCorner))
            throw nb::value_error("expected corners within 2^31 pixels of the image's first");
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        const std::int64_t end = ends.data()[i], owner = owners.data()[i];
        if (end < begin || (end - begin) % 2 || end > static_cast<std::int64_t>(corners.size()) || owner < 0 ||
            owner >= static_cast<std::int64_t>(masks.shape(0)))
            throw nb::value_error("expected pairs of numbers for each polygon, and one of the instances");
        begin = end;
    }
    nb::gil_scoped_release release;
    begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        const std::int64_t end = ends.data()[i];
        paint_polygon(corners.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), picked,
                      masks.data() + static_cast<std::size_t>(owners.data()[i]) * picked.count());
        begin = end;
    }
}

void paint(const Mask& mask, const Values<std::int64_t>& runs, int height, const Values<std::int32_t>& rows,
           const Values<std::int32_t>& columns) {
    const PickedPixels picked = picked_of(rows, columns, mask.shape(0), mask.shape(1));
    const std::span<const std::int64_t> lengths = span_of(runs);
    if (std::any_of(lengths.begin(), lengths.end(), [](std::int64_t each) { return each < 0 || each > INT32_MAX; }))
        throw nb::value_error("expected runs of 0 pixels or more");
    nb::gil_scoped_release release;
    paint_runs(lengths, height, picked, mask.data());
}

}  // namespace

void bind_outlines(nb::module_& m) {
    m.def(
        "nearest_pixels",
        [](double from, double to, int low, int high, int outputs, bool backward) {
            Taps taps;
            taps.nearest(Filter::nearest, from, to, low, high, outputs, false, backward);
            return to_numpy(std::move(taps.start));
        },
        "begin"_a, "end"_a, "low"_a, "high"_a, "count"_a, "backward"_a);
    m.def("paint_polygons", &paint_polygons, "masks"_a, nb::kw_only(), "xy"_a, "ends"_a, "owners"_a, "rows"_a,
          "columns"_a);
    m.def("paint_runs", &paint, "mask"_a, nb::kw_only(), "runs"_a, "height"_a, "rows"_a, "columns"_a);
    m.def("parse_runs", [](std::string_view text) { return to_numpy(parse_runs(text)); }, "text"_a);
}

}  // namespace headrace
