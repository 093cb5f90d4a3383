#include "names.hpp"

#include <nanobind/stl/tuple.h>

#include <limits>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "names/name_table.hpp"
#include "numpy.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

using StartsIn = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsIn = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::tuple build(BytesIn names, OffsetsIn offsets) {
    const std::span<const std::uint64_t> bounds(offsets.data(), offsets.shape(0));
    NameTable table;
    try {
        check_offsets(text_of(names), bounds);
        nb::gil_scoped_release release;
        table = build_name_table(names_of(text_of(names), bounds));
    } catch (const Fault& fault) {
        raise(PyExc_ValueError, fault);
    }
    return nb::make_tuple(to_numpy(std::move(table.starts)), to_numpy(std::move(table.order)));
}

// Keeps the arrays that it looks into.
class PyNameLookup {
public:
    PyNameLookup(BytesIn names, OffsetsIn offsets, StartsIn starts, IdsIn order)
        : names_(names), offsets_(offsets), starts_(starts), order_(order) {}

    std::int64_t find(nb::bytes name, std::int64_t before) const {
        const NameLookup lookup{text_of(names_),
                                {offsets_.data(), offsets_.shape(0)},
                                {starts_.data(), starts_.shape(0)},
                                {order_.data(), order_.shape(0)}};
        try {
            return lookup.find({name.c_str(), name.size()}, before);
        } catch (const Fault& fault) {
            raise(PyExc_ValueError, fault);
        }
    }

private:
    BytesIn names_;
    OffsetsIn offsets_;
    StartsIn starts_;
    IdsIn order_;
};

}  // namespace

void raise(PyObject* kind, const Fault& fault) {
    const std::string what = fault.what();
    nb::object text = nb::steal(PyUnicode_DecodeUTF8(what.data(), what.size(), "backslashreplace"));
    if (text.is_valid()) PyErr_SetObject(kind, text.ptr());
    throw nb::python_error();
}

void bind_names(nb::module_& m) {
    m.def("build_name_table", &build, nb::arg("names"), nb::arg("name_offsets"),
          "A hash table of names: (starts uint32[buckets + 1], order int32[n]).");
    nb::class_<PyNameLookup>(m, "NameLookup")
        .def(nb::init<BytesIn, OffsetsIn, StartsIn, IdsIn>(), nb::arg("names"), nb::arg("name_offsets"),
             nb::arg("starts"), nb::arg("order"))
        .def("find", &PyNameLookup::find, nb::arg("name"), nb::arg("before") = std::numeric_limits<std::int64_t>::max(),
             "The greatest id below `before` that has this name; -1 if none has. ValueError: the table is damaged.");
}

}  // namespace headrace
