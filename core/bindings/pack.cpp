#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "common/fault.hpp"
#include "pack/encode.hpp"
#include "pack/transcode.hpp"

namespace nb = nanobind;

namespace headrace {
namespace {

nb::bytes bytes_of(const std::vector<std::uint8_t>& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

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

nb::bytes encode(const nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>& pixels, int quality,
                 const std::string& subsampling, bool restart) {
    const bool grey = pixels.ndim() == 2;
    if (!grey && (pixels.ndim() != 3 || pixels.shape(2) != 3)) {
        throw nb::value_error("expected uint8 pixels of shape [H, W, 3] or [H, W]");
    }
    if (quality < 1 || quality > 100) {
        throw nb::value_error(("expected quality 1 to 100, got " + std::to_string(quality)).c_str());
    }
    if (subsampling != "420" && subsampling != "444") {
        throw nb::value_error(("expected subsampling 420 or 444, got " + subsampling).c_str());
    }
    const auto side = [&](int axis) { return static_cast<int>(std::min<std::size_t>(pixels.shape(axis), INT_MAX)); };
    const JpegPixels source{pixels.data(), side(0), side(1), grey ? 1 : 3};
    const EncodeOptions options{quality, subsampling == "420", restart};
    std::vector<std::uint8_t> file;
    try {
        const nb::gil_scoped_release release;
        file = encode_jpeg(source, options);
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
    return bytes_of(file);
}

}  // namespace

void bind_pack(nb::module_& m) {
    m.def("transcode_jpeg", &transcode, nb::arg("data"), nb::kw_only(), nb::arg("restart") = nb::none(),
          nb::arg("limits") = Limits{},
          "The same coefficients as one baseline scan with Huffman codes for photographs and a restart marker every "
          "`restart` MCUs, chosen by default; None where the file should stay as it is; ValueError.");
    m.def("encode_jpeg", &encode, nb::arg("pixels"), nb::kw_only(), nb::arg("quality") = 90,
          nb::arg("subsampling") = "420", nb::arg("restart") = true,
          "uint8 [H, W, 3] or [H, W] as a baseline JPEG with Huffman codes for photographs and, with `restart`, the "
          "restart grid of transcode_jpeg; ValueError.");
}

}  // namespace headrace
