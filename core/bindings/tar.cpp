#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "names.hpp"
#include "numpy.hpp"
#include "tar/tar.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

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
        raise(fault.code == Code::io ? PyExc_OSError : PyExc_ValueError, fault);
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
    m.def("tar_header_check", &header_check, nb::arg("block"),
          "The identity hash of a 512-byte tar header block, as scan_tar reports it.");
}

}  // namespace headrace
