#include <nanobind/nanobind.h>

#include <string>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "image_options.hpp"
#include "numpy.hpp"
#include "zip/directory.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

nb::tuple read_directory(nb::bytes path) {
    ZipMembers members;
    try {
        nb::gil_scoped_release release;
        members = read_zip_directory({path.c_str(), path.size()});
    } catch (const Fault& fault) {
        PyErr_SetObject(fault.code == Code::io ? PyExc_OSError : PyExc_ValueError, text_of(fault.what()).ptr());
        throw nb::python_error();
    }
    return nb::make_tuple(to_numpy_bytes(std::move(members.names)), to_numpy(std::move(members.name_offsets)),
                          to_numpy(std::move(members.size)), to_numpy(std::move(members.packed)),
                          to_numpy(std::move(members.method)), to_numpy(std::move(members.crc)),
                          to_numpy(std::move(members.offset)), to_numpy(std::move(members.flags)),
                          to_numpy(std::move(members.check)), members.start);
}

}  // namespace

void bind_zip(nb::module_& m) {
    m.def("read_zip_directory", &read_directory, nb::arg("path"),
          "Members of a zip: (names uint8[], name_offsets uint64[n + 1], size int64[n], packed int64[n],\n"
          "method uint32[n], crc uint32[n], offset int64[n], flags uint32[n], check uint32[n], start of the\n"
          "directory). OSError: cannot be read. ValueError: not a zip, damaged, or a part of one.");
}

}  // namespace headrace
