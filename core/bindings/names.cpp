#include "names.hpp"

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "bindings.hpp"
#include "common/block_checks.hpp"
#include "common/fault.hpp"
#include "names/inside.hpp"
#include "names/name_table.hpp"
#include "names/stored_names.hpp"
#include "numpy.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

using StartsIn = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsIn = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using WhichIn = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Names borrowed(const BytesIn& blob, const OffsetsIn& offsets) {
    return {text_of(blob), {offsets.data(), offsets.shape(0)}};
}

nb::tuple build(BytesIn names, OffsetsIn offsets) {
    const Names all = borrowed(names, offsets);
    NameTable table;
    try {
        check_offsets(all.text, all.offsets);
        nb::gil_scoped_release release;
        table = build_name_table(all.size(), [&](std::int64_t id) { return all.at(id); });
    } catch (const Fault& fault) {
        raise(PyExc_ValueError, fault);
    }
    return nb::make_tuple(to_numpy(std::move(table.starts)), to_numpy(std::move(table.order)));
}

// Lookup that keeps its arrays alive.
class PyNameLookup {
public:
    PyNameLookup(BytesIn names, OffsetsIn offsets, StartsIn starts, IdsIn order)
        : names_(names), offsets_(offsets), starts_(starts), order_(order) {}

    std::int64_t find(nb::bytes name, std::int64_t before) const {
        try {
            return lookup().find({name.c_str(), name.size()}, before);
        } catch (const Fault& fault) {
            raise(PyExc_ValueError, fault);
        }
    }

    auto find_paths(BytesIn blob, OffsetsIn offsets, WhichIn which) const {
        const NameLookup table = lookup();
        const Names paths = borrowed(blob, offsets);
        const std::span<const std::int64_t> ids(which.data(), which.shape(0));
        std::vector<std::int64_t> found(ids.size());
        try {
            nb::gil_scoped_release release;
            std::ranges::transform(ids, found.begin(), [&](std::int64_t id) { return table.find_path(paths.at(id)); });
        } catch (const Fault& fault) {
            raise(PyExc_ValueError, fault);
        }
        return to_numpy(std::move(found));
    }

private:
    NameLookup lookup() const {
        return {borrowed(names_, offsets_), {starts_.data(), starts_.shape(0)}, {order_.data(), order_.shape(0)}};
    }

    BytesIn names_;
    OffsetsIn offsets_;
    StartsIn starts_;
    IdsIn order_;
};

// Runs `work` without the GIL and translates its errors: ValueError for corrupt data, OSError for failed reads.
template <typename Work>
void read_released(Work work) {
    try {
        nb::gil_scoped_release release;
        work();
    } catch (const Fault& fault) {
        raise(PyExc_ValueError, fault);
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

nb::tuple take(int fd, std::int64_t blob_at, std::uint64_t blob_bytes, std::int64_t offsets_at, std::int64_t count,
               WhichIn which, const BlockChecks* checks) {
    TakenNames taken;
    read_released([&] {
        taken = take_names({fd, blob_at, blob_bytes, offsets_at, count, checks}, {which.data(), which.shape(0)});
    });
    return nb::make_tuple(to_numpy(std::move(taken.blob)), to_numpy(std::move(taken.offsets)));
}

BlockChecks* new_checks(nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> sums,
                        std::int64_t begin, std::int64_t end) {
    try {
        return new BlockChecks(begin, end, {sums.data(), sums.data() + sums.shape(0)});
    } catch (const Fault& fault) {
        raise(PyExc_ValueError, fault);
    }
}

void bind_checks(nb::module_& m) {
    m.attr("CHECKED_BLOCK_BYTES") = checked_block_bytes;
    nb::class_<BlockSums>(m, "BlockSums")
        .def(nb::init<>())
        .def(
            "add", [](BlockSums& sums, BytesIn bytes) { sums.add({bytes.data(), bytes.shape(0)}); }, nb::arg("bytes"),
            "The bytes that come next.")
        .def(
            "sums", [](const BlockSums& sums) { return to_numpy(sums.sums()); },
            "CRC-32 of each CHECKED_BLOCK_BYTES of them, the last of what is left: uint32[blocks].");
    nb::class_<BlockChecks>(m, "BlockChecks")
        .def(nb::new_(&new_checks), nb::arg("sums"), nb::kw_only(), nb::arg("begin"), nb::arg("end"))
        .def(
            "check",
            [](const BlockChecks& checks, int fd, std::int64_t from, std::int64_t to) {
                read_released([&] { checks.check(fd, from, to); });
            },
            nb::arg("fd"), nb::arg("start"), nb::arg("stop"),
            "Reads the blocks of these bytes that nobody has looked at. ValueError: they do not fit their checksums.\n"
            "OSError: they cannot be read.")
        .def(
            "check_rows",
            [](const BlockChecks& checks, int fd, std::int64_t at, std::int64_t row_bytes, std::int64_t count,
               WhichIn rows) {
                read_released([&] { checks.check_rows(fd, at, row_bytes, count, {rows.data(), rows.shape(0)}); });
            },
            nb::arg("fd"), nb::kw_only(), nb::arg("at"), nb::arg("row_bytes"), nb::arg("count"), nb::arg("rows"),
            "The same for those of `count` rows that begin at byte `at`.");
}

}  // namespace

void raise(PyObject* kind, const Fault& fault) {
    const std::string what = fault.what();
    nb::object text = nb::steal(PyUnicode_DecodeUTF8(what.data(), what.size(), "backslashreplace"));
    if (text.is_valid()) PyErr_SetObject(kind, text.ptr());
    throw nb::python_error();
}

void bind_names(nb::module_& m) {
    bind_checks(m);
    m.def("build_name_table", &build, nb::arg("names"), nb::arg("name_offsets"),
          "A hash table of names: (starts uint32[buckets + 1], order int32[n]).");
    m.def(
        "leads_out", [](nb::bytes path) { return leads_out({path.c_str(), path.size()}); }, nb::arg("path"),
        "Whether a path is absolute, or its `..` climb above where it starts.");
    m.def("take_names", &take, nb::arg("fd"), nb::kw_only(), nb::arg("blob_at"), nb::arg("blob_bytes"),
          nb::arg("offsets_at"), nb::arg("count"), nb::arg("which"), nb::arg("checks").none() = nb::none(),
          "The names of these ids out of a file: (blob uint8[], offsets uint64[n + 1]). OSError: it cannot be read.\n"
          "ValueError: it is damaged, or shorter than it was.");
    nb::class_<PyNameLookup>(m, "NameLookup")
        .def(nb::init<BytesIn, OffsetsIn, StartsIn, IdsIn>(), nb::arg("names"), nb::arg("name_offsets"),
             nb::arg("starts"), nb::arg("order"))
        .def("find", &PyNameLookup::find, nb::arg("name"), nb::arg("before") = std::numeric_limits<std::int64_t>::max(),
             "The greatest id below `before` that has this name; -1 if none has. ValueError: the table is damaged.")
        .def("find_paths", &PyNameLookup::find_paths, nb::arg("blob"), nb::arg("offsets"), nb::arg("which"),
             "The greatest id of each path of `blob` and `offsets` that `which` names, -1 where there is none; a "
             "leading\n"
             "\"./\" makes no difference. ValueError: the table or the offsets are damaged.");
}

}  // namespace headrace
