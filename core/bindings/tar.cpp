#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "names.hpp"
#include "numpy.hpp"
#include "tar/samples.hpp"
#include "tar/tar.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

// Messages carry member names, which need not be UTF-8.
[[noreturn]] void raise(const Fault& fault) {
    const std::string what = fault.what();
    nb::object text = nb::steal(PyUnicode_DecodeUTF8(what.data(), what.size(), "backslashreplace"));
    if (text.is_valid()) PyErr_SetObject(fault.code == Code::io ? PyExc_OSError : PyExc_ValueError, text.ptr());
    throw nb::python_error();
}

// Headers between two looks at pending signals: some milliseconds of work.
constexpr int headers_per_slice = 4096;

TarMembers scan(const std::string& path) {
    nb::gil_scoped_release release;
    TarScanner scanner(path);
    while (scanner.advance(headers_per_slice)) {
        nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return scanner.take();
}

nb::tuple scan_tar(nb::bytes path) {
    try {
        TarMembers members = scan({path.c_str(), path.size()});
        nb::dict skipped;
        skipped["directories"] = members.directories;
        skipped["links"] = members.hard_and_soft_links;
        skipped["devices"] = members.devices;
        skipped["sparse files"] = members.sparse;
        skipped["members of unknown type"] = members.unknown;
        skipped["bytes after the end mark"] = members.bytes_after_end;
        return nb::make_tuple(to_numpy_bytes(std::move(members.names)), to_numpy(std::move(members.name_offsets)),
                              to_numpy(std::move(members.type)), to_numpy(std::move(members.data_offset)),
                              to_numpy(std::move(members.size)), to_numpy(std::move(members.check)),
                              to_numpy_bytes(std::move(members.links)), to_numpy(std::move(members.link_offsets)),
                              to_numpy(std::move(members.link_of)), skipped);
    } catch (const Fault& fault) {
        raise(fault);
    }
}

TarSamples group(const BytesIn& names, const OffsetsIn& offsets, const BytesIn& types) {
    const std::string_view text(reinterpret_cast<const char*>(names.data()), names.shape(0));
    const std::span<const std::uint64_t> bounds(offsets.data(), offsets.shape(0));
    check_offsets(text, bounds);
    if (types.shape(0) + 1 != bounds.size()) throw Fault(Code::corrupt, "expected as many types as names");
    nb::gil_scoped_release release;
    return group_members(text, bounds, std::span(types.data(), types.shape(0)));
}

nb::tuple group_names(BytesIn names, OffsetsIn offsets, BytesIn types) {
    try {
        TarSamples samples = group(names, offsets, types);
        nb::list extensions;
        for (const std::string& text : samples.extensions) extensions.append(nb::bytes(text.data(), text.size()));
        nb::dict skipped;
        skipped["hidden members"] = samples.hidden;
        skipped["metadata members"] = samples.metadata;
        skipped["members without extension"] = samples.without_extension;
        return nb::make_tuple(to_numpy_bytes(std::move(samples.keys)), to_numpy(std::move(samples.key_offsets)),
                              to_numpy(std::move(samples.sample_of)), to_numpy(std::move(samples.extension_of)),
                              extensions, to_numpy_bytes(std::move(samples.folders)),
                              to_numpy(std::move(samples.folder_offsets)), to_numpy(std::move(samples.folder_of)),
                              skipped);
    } catch (const Fault& fault) {
        raise(fault);
    }
}

std::uint32_t header_check(nb::bytes block) {
    if (block.size() != tar_block_bytes) throw nb::value_error("expected a tar header block of 512 bytes");
    return tar_header_check(reinterpret_cast<const std::uint8_t*>(block.data()));
}

}  // namespace

void bind_tar(nb::module_& m) {
    m.def(
        "scan_tar", &scan_tar, nb::arg("path"),
        "Members of a tar: (names uint8[], name_offsets uint64[n + 1], type uint8[n], data_offset int64[n],\n"
        "size int64[n], check uint32[n], links uint8[], link_offsets uint64[l + 1], link_of int64[l], skipped dict of\n"
        "what is no regular file). OSError: cannot be read. ValueError: not a tar, damaged, or beyond a limit.");
    m.def("group_members", &group_names, nb::arg("names"), nb::arg("name_offsets"), nb::arg("types"),
          "Samples of member names: (keys uint8[], key_offsets uint64[s + 1], sample_of int64[n], extension_of "
          "int32[n],\n"
          "extensions list[bytes], folders uint8[], folder_offsets uint64[f + 1], folder_of int32[s], skipped dict).\n"
          "-1: none. ValueError: more than 256 extensions.");
    m.def("tar_header_check", &header_check, nb::arg("block"),
          "The identity hash of a 512-byte tar header block, as scan_tar reports it.");
}

}  // namespace headrace
