#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/job.hpp"
#include "bindings.hpp"
#include "common/fault.hpp"
#include "view/exact_math.hpp"
#include "view/program.hpp"
#include "view/sample.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

using Table = nb::ndarray<const double, nb::shape<-1, kProgramColumns>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<ViewOp> program_of(const Table& table) {
    try {
        return parse_program({table.data(), table.size()});
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
}

// Fills one row of a table of views per index; a Fault becomes a ValueError that names the row.
template <typename MakeView>
nb::ndarray<nb::numpy, double> table_of(std::size_t count, const MakeView& make_view) {
    auto out = std::make_unique_for_overwrite<double[]>(count * kViewRow);
    {
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < count; ++i) try {
                write_view(make_view(i), &out[i * kViewRow]);
            } catch (const Fault& fault) {
                throw nb::value_error(("view " + std::to_string(i) + ": " + fault.what()).c_str());
            }
    }
    double* values = out.get();
    nb::capsule owner(out.release(), [](void* p) noexcept { delete[] static_cast<double*>(p); });
    return nb::ndarray<nb::numpy, double>(values, {count, kViewRow}, owner);
}

nb::ndarray<nb::numpy, double> sample_views(const Table& table, std::uint64_t key, const Column<std::int64_t>& ids,
                                            const Column<std::uint32_t>& passes, std::uint16_t dataset,
                                            const Column<std::int32_t>& widths, const Column<std::int32_t>& heights,
                                            int copy) {
    const std::size_t count = ids.size();
    if (passes.size() != count || widths.size() != count || heights.size() != count)
        throw nb::value_error("sample_views: expected ids, passes, widths and heights of one length");
    const std::vector<ViewOp> program = program_of(table);
    return table_of(count, [&](std::size_t i) {
        return sample_view(program, key, static_cast<std::uint64_t>(ids.data()[i]), passes.data()[i], dataset,
                           widths.data()[i], heights.data()[i], copy);
    });
}

using ViewTable = nb::ndarray<const double, nb::shape<-1, kViewRow>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, double> scale_views(const ViewTable& views, int from_width, int from_height, int to_width,
                                           int to_height) {
    return table_of(views.shape(0), [&](std::size_t i) {
        return scale_view(read_view(views.data() + i * kViewRow), from_width, from_height, to_width, to_height);
    });
}

std::optional<std::pair<int, int>> fixed_size(const Table& table) {
    const std::optional<OutputSize> size = output_size(program_of(table));
    if (!size) return std::nullopt;
    return std::pair{size->height, size->width};
}

std::optional<int> copies(const Table& table) { return copies_of(program_of(table)); }

bool depends_on_key(const Table& table) { return is_random(program_of(table)); }

}  // namespace

void bind_view(nb::module_& m) {
    m.def("sample_views", &sample_views, nb::arg("program").noconvert(), "key"_a, nb::arg("ids").noconvert(),
          nb::arg("passes").noconvert(), "dataset"_a, nb::arg("widths").noconvert(), nb::arg("heights").noconvert(),
          nb::kw_only(), "copy"_a = 0,
          "The views (float64[N, 17], columns as ViewColumn) that a program (float64[ops, 10]) draws for samples\n"
          "of the given ids (int64[N]), passes (uint32[N]), widths and heights (int32[N], pixels). `copy` is the "
          "number of\n"
          "each view among those of its sample.");
    m.def("scale_views", &scale_views, nb::arg("views").noconvert(), "from_width"_a, "from_height"_a, "to_width"_a,
          "to_height"_a, "The same views (float64[N, 17]) of a field of another resolution.");
    m.def("exact_exp", &exact_exp, "x"_a, "e**x for |x| < 700, the same bits on every machine.");
    m.def("exact_log", &exact_log, "x"_a, "ln x for positive normal x, the same bits on every machine.");
    m.def("output_size", &fixed_size, nb::arg("program").noconvert(),
          "(height, width) of every output of a program (float64[ops, 10]), or None when it depends on the source.");
    m.def("copies_of", &copies, nb::arg("program").noconvert(),
          "How many views of a sample a program (float64[ops, 10]) stands for, or None when that is left open.");
    m.def("is_random", &depends_on_key, nb::arg("program").noconvert(),
          "Whether views of a program (float64[ops, 10]) depend on their key.");
}

}  // namespace headrace
