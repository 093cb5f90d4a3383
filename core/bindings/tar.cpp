#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "names.hpp"
#include "numpy.hpp"
#include "tar/tar.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

// Headers between two checks for pending signals: a few milliseconds of work.
constexpr int headers_per_slice = 4096;

TarMembers scan(TarScanner& scanner) {
    nb::gil_scoped_release release;
    while (scanner.advance(headers_per_slice)) {
        nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return scanner.take();
}

nb::tuple members_of(TarScanner& scanner) {
    try {
        TarMembers members = scan(scanner);
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

nb::tuple scan_tar(nb::bytes path) {
    try {
        TarScanner scanner({path.c_str(), path.size()});
        return members_of(scanner);
    } catch (const Fault& fault) {
        raise(PyExc_OSError, fault);
    }
}

// Calls `read(offset, length)`, which returns bytes, with the GIL; the scan runs without it.
RangeReader python_reader(nb::callable read) {
    return [read](std::uint8_t* to, std::int64_t offset, std::int64_t length) {
        nb::gil_scoped_acquire acquire;
        const nb::bytes data = nb::cast<nb::bytes>(read(offset, length));
        const std::int64_t got = std::min<std::int64_t>(length, static_cast<std::int64_t>(data.size()));
        std::memcpy(to, data.c_str(), got);
        return got;
    };
}

// Calls `growth()`, which returns (min_bytes, max_bytes, close_bytes), with the GIL.
GrowthSource python_growth(nb::callable growth) {
    return [growth] {
        nb::gil_scoped_acquire acquire;
        const auto [least, most, close] = nb::cast<std::tuple<std::int64_t, std::int64_t, std::int64_t>>(growth());
        if (least < tar_block_bytes || most < least || close < 0)
            throw nb::value_error("expected windows of at least 512 bytes");
        return WindowGrowth{least, most, close};
    };
}

nb::tuple scan_remote_tar(const std::string& name, std::int64_t size, nb::callable read, nb::callable growth) {
    if (size < 0) throw nb::value_error("expected a size");
    TarScanner scanner(name, size, python_reader(read), python_growth(growth));
    return members_of(scanner);
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
    m.def("scan_remote_tar", &scan_remote_tar, nb::arg("name"), nb::arg("size"), nb::arg("read"), nb::arg("growth"),
          "Members of a tar of `size` bytes that `read(offset, length)` reads, as scan_tar has them. Pieces of\n"
          "min_bytes are read, and of up to max_bytes where headers lie within close_bytes of each other. `growth()`\n"
          "returns these three, and is asked ahead of each piece. Raises what `read` raises, too.");
    m.def("tar_header_check", &header_check, nb::arg("block"),
          "The identity hash of a 512-byte tar header block, as scan_tar reports it.");
}

}  // namespace headrace
