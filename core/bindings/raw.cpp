#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "common/memory_budget.hpp"
#include "jpeg/jpeg.hpp"
#include "raw/y4m.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

nb::bytes jpeg_planes(const nb::bytes& data, const Limits& limits) {
    thread_local JpegDecoder decoder;
    try {
        const JpegInfo& jpeg =
            decoder.open({static_cast<const std::uint8_t*>(data.data()), data.size()}, limits, false);
        const Y4mInfo info{jpeg.width, jpeg.height, decoder.sampling()};
        const std::string header = y4m_header(info);
        expect_memory(info.bytes() * (jpeg.progressive ? 3 : 1), limits.max_decode_bytes);  // and 16-bit coefficients
        // Uninitialized until filled; no other thread knows the object.
        nb::object file =
            nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(header.size() + info.bytes())));
        if (!file.is_valid()) throw nb::python_error();
        auto* out = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(file.ptr()));
        std::memcpy(out, header.data(), header.size());
        {
            const nb::gil_scoped_release release;
            decoder.decode_planes(out + header.size());
        }
        return nb::borrow<nb::bytes>(file);
    } catch (const Fault& fault) {
        throw nb::value_error(((fault.code == Code::declined ? "declined: " : "") + std::string(fault.what())).c_str());
    }
}

}  // namespace

void bind_raw(nb::module_& m) {
    m.def(
        "jpeg_planes", &jpeg_planes, "data"_a, nb::kw_only(), "limits"_a = Limits{},
        "A YUV4MPEG2 file of one frame, with the component planes of a JPEG before chroma upsampling. ValueError; its "
        "text begins with \"declined\" for RGB, CMYK, and samplings other than 4:4:4, 4:2:2, 4:2:0 and grey.");
}

}  // namespace headrace
