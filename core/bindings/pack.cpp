#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "pack/transcode.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

nb::bytes bytes_of(const std::vector<std::uint8_t>& bytes) {
    return nb::bytes(bytes.data(), bytes.size());
}

std::optional<nb::bytes> transcode(const nb::bytes& data, std::optional<int> restart, const Limits& limits) {
    if (restart && (*restart < 0 || *restart > 0xFFFF)) {
        throw nb::value_error(("expected restart 0 to 65535, got " + std::to_string(*restart)).c_str());
    }
    std::optional<std::vector<std::uint8_t>> file;
    try {
        const nb::gil_scoped_release release;
        file = transcode_jpeg({static_cast<const std::uint8_t*>(data.data()), data.size()}, limits, restart);
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
    if (!file) return std::nullopt;
    return bytes_of(*file);
}

}  // namespace

void bind_pack(nb::module_& m) {
    m.def("transcode_jpeg", &transcode, nb::arg("data"), nb::kw_only(), nb::arg("restart") = nb::none(),
          nb::arg("limits") = Limits{},
          "The same coefficients as one baseline scan with optimised Huffman codes and a restart marker every `restart` "
          "MCUs, chosen by default; None where the file should stay as it is; ValueError.");
}

}  // namespace headrace
