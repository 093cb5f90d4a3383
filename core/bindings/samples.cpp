#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "names.hpp"
#include "names/name_table.hpp"
#include "numpy.hpp"
#include "samples/grouping.hpp"
#include "samples/sample_finder.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<const T> span_of(const In<T>& array) {
    return {array.data(), array.shape(0)};
}

Samples group(const BytesIn& names, const OffsetsIn& offsets, const BytesIn& types, bool last_dot) {
    const std::string_view text = text_of(names);
    check_offsets(text, span_of(offsets));
    if (types.shape(0) + 1 != offsets.shape(0)) throw Fault(Code::corrupt, "expected as many types as names");
    nb::gil_scoped_release release;
    return group_members({text, span_of(offsets)}, span_of(types), last_dot);
}

nb::tuple group_names(BytesIn names, OffsetsIn offsets, BytesIn types, bool last_dot) {
    Samples samples;
    try {
        samples = group(names, offsets, types, last_dot);
    } catch (const Fault& fault) {
        raise(PyExc_ValueError, fault);
    }
    nb::list extensions;
    for (const std::string& text : samples.extensions) extensions.append(nb::bytes(text.data(), text.size()));
    nb::dict skipped;
    skipped["hidden members"] = samples.hidden;
    skipped["metadata members"] = samples.metadata;
    skipped["members without extension"] = samples.without_extension;
    skipped["duplicate members"] = samples.duplicates;
    return nb::make_tuple(to_numpy(std::move(samples.first)), to_numpy(std::move(samples.member)),
                          to_numpy(std::move(samples.extension)), extensions,
                          to_numpy_bytes(std::move(samples.folders)), to_numpy(std::move(samples.folder_offsets)),
                          to_numpy(std::move(samples.folder_of)), skipped);
}

// Finder that keeps its arrays alive.
class PySampleFinder {
public:
    void add(BytesIn names, OffsetsIn offsets, In<std::uint32_t> first, In<std::int32_t> member, BytesIn extension,
             bool last_dot) {
        try {
            finder_.add(
                {text_of(names), span_of(offsets), span_of(first), span_of(member), span_of(extension), last_dot});
        } catch (const Fault& fault) {
            raise(PyExc_ValueError, fault);
        }
        kept_.emplace_back(names, offsets, first, member, extension);
    }

    nb::tuple find(In<std::int64_t> ids, BytesIn ranks) const {
        std::vector<std::int64_t> archive(ids.shape(0)), member(ids.shape(0));
        try {
            nb::gil_scoped_release release;
            for (std::size_t i = 0; i < archive.size(); ++i) {
                const FoundMember found = finder_.find(ids.data()[i], span_of(ranks));
                archive[i] = found.archive;
                member[i] = found.member;
            }
        } catch (const Fault& fault) {
            raise(PyExc_ValueError, fault);
        }
        return nb::make_tuple(to_numpy(std::move(archive)), to_numpy(std::move(member)));
    }

    nb::tuple keys(In<std::int64_t> ids) const {
        std::string keys;
        std::vector<std::uint64_t> offsets{0};
        try {
            nb::gil_scoped_release release;
            offsets.reserve(ids.shape(0) + 1);
            for (const std::int64_t id : span_of(ids)) {
                keys += finder_.key(id);
                offsets.push_back(keys.size());
            }
        } catch (const Fault& fault) {
            raise(PyExc_ValueError, fault);
        }
        return nb::make_tuple(to_numpy_bytes(std::move(keys)), to_numpy(std::move(offsets)));
    }

private:
    SampleFinder finder_;
    std::vector<std::tuple<BytesIn, OffsetsIn, In<std::uint32_t>, In<std::int32_t>, BytesIn>> kept_;
};

// Several arrays read as one without a copy.
template <typename T>
class PyJoined {
public:
    void add(In<T> part) { parts_.push_back(part); }

    auto take(In<std::int64_t> part, In<std::int64_t> index) const {
        if (part.shape(0) != index.shape(0)) throw nb::value_error("expected an index for each part");
        std::vector<T> taken(part.shape(0));
        for (std::size_t i = 0; i < taken.size(); ++i) taken[i] = at(part.data()[i], index.data()[i]);
        return to_numpy(std::move(taken));
    }

private:
    T at(std::int64_t part, std::int64_t index) const {
        if (index == -1) return 0;
        if (part < 0 || part >= static_cast<std::int64_t>(parts_.size()))
            throw nb::index_error("an index lies outside the parts");
        if (index < 0 || index >= static_cast<std::int64_t>(parts_[part].shape(0)))
            throw nb::index_error("an index lies outside its part");
        return parts_[part].data()[index];
    }

    std::vector<In<T>> parts_;
};

template <typename T>
void bind_joined(nb::module_& m, const char* name) {
    nb::class_<PyJoined<T>>(m, name)
        .def(nb::init<>())
        .def("add", &PyJoined<T>::add, nb::arg("part"))
        .def("take", &PyJoined<T>::take, nb::arg("part"), nb::arg("index"),
             "For each part (int64[n]) and index in it (int64[n]) the value there; 0 for index -1. IndexError.");
}

}  // namespace

void bind_samples(nb::module_& m) {
    m.def(
        "group_members", &group_names, nb::arg("names"), nb::arg("name_offsets"), nb::arg("types"),
        nb::arg("last_dot") = false,
        "Samples of member names: (first uint32[s + 1], member int32[m], extension uint8[m], extensions list[bytes],\n"
        "folders uint8[], folder_offsets uint64[f + 1], folder_of int32[s], skipped dict); the members of sample i\n"
        "are member[first[i] : first[i + 1]]. ValueError: more than 256 extensions.");
    nb::class_<PySampleFinder>(m, "SampleFinder")
        .def(nb::init<>())
        .def("add", &PySampleFinder::add, nb::arg("names"), nb::arg("name_offsets"), nb::arg("first"),
             nb::arg("member"), nb::arg("extension"), nb::arg("last_dot") = false, "One more archive's samples.")
        .def("find", &PySampleFinder::find, nb::arg("ids"), nb::arg("ranks"),
             "For each sample its archive and, of its members, the one whose extension ranks lowest (ranks uint8[256]\n"
             "an archive; 255: never taken), -1 if it has none: (int64[n], int64[n]). IndexError: there is no such\n"
             "sample. ValueError: the arrays are damaged.")
        .def("keys", &PySampleFinder::keys, nb::arg("ids"),
             "The samples' keys: (uint8[], offsets uint64[n + 1]). Raises as `find` does.");
    bind_joined<std::int64_t>(m, "JoinedInt64");
    bind_joined<std::uint32_t>(m, "JoinedUInt32");
}

}  // namespace headrace
