#include "augment/mixing.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.hpp"
#include "image_options.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

template <typename T>
using Images = nb::ndarray<T, nb::ndim<5>, nb::c_contig, nb::device::cpu>;
using Block = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// One row per pair: weight, left, top, right, bottom.
using Pairs = nb::ndarray<const std::int32_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>;

template <typename T>
MixShape shape_of(const Images<T>& images) {
    return {static_cast<int>(images.shape(1)), static_cast<int>(images.shape(2)), static_cast<int>(images.shape(3)),
            static_cast<int>(images.shape(4))};
}

std::vector<PairMix> parse_pairs(const Pairs& rows, std::size_t images, const MixShape& shape) {
    if (2 * rows.shape(0) > images) throw nb::value_error("expected two images for each pair");
    std::vector<PairMix> pairs;
    for (std::size_t k = 0; k < rows.shape(0); ++k) {
        const std::int32_t* at = rows.data() + 5 * k;
        const PairMix pair{at[0], at[1], at[2], at[3], at[4]};
        if (pair.weight < 0 || pair.weight > kMixOne) throw nb::value_error("expected weights from 0 to 32768");
        if (pair.left < 0 || pair.top < 0 || pair.right > shape.width || pair.bottom > shape.height)
            throw nb::value_error("expected boxes within the image");
        pairs.push_back(pair);
    }
    return pairs;
}

template <typename T>
void mix_images(const Images<T>& images, const Pairs& rows, const std::string& level) {
    const MixShape shape = shape_of(images);
    const std::vector<PairMix> pairs = parse_pairs(rows, images.shape(0), shape);
    const Level parsed = parse_level(level);
    T* const data = images.data();
    nb::gil_scoped_release released;
    mix(data, shape, pairs, parsed);
}

void mix_images_to_floats(const Images<std::uint8_t>& images, const Pairs& rows, const Block& out,
                          const std::string& dtype, const std::vector<float>& subtract,
                          const std::vector<float>& divide, const std::string& level) {
    const MixShape shape = shape_of(images);
    const std::vector<PairMix> pairs = parse_pairs(rows, images.shape(0), shape);
    const DType kind = parse_dtype(dtype);
    const auto channels = static_cast<std::size_t>(shape.planes) * shape.values;
    if (kind == DType::uint8 || kind == DType::uint16) throw nb::value_error("expected a dtype of floats");
    if (subtract.size() != channels || divide.size() != channels)
        throw nb::value_error("expected a number for each channel");
    if (out.size() < images.size() * size_of(kind)) throw nb::value_error("expected room for every image");
    const Level parsed = parse_level(level);
    std::uint8_t *const from = images.data(), *const to = out.data();
    const std::size_t count = images.shape(0);
    nb::gil_scoped_release released;
    mix_to_floats(from, count, shape, pairs, subtract, divide, kind, to, parsed);
}

}  // namespace

void bind_mixing(nb::module_& m) {
    constexpr const char* kInPlace =
        "Mix each pair of neighbours (int32 [pairs, 5]: weight of 32768, left, top, right, bottom) of uint8 or float32 "
        "[images, planes, height, width, values] in place.";
    m.def("mix_images", &mix_images<std::uint8_t>, nb::arg("images").noconvert(), nb::arg("pairs").noconvert(),
          "level"_a = "best", kInPlace);
    m.def("mix_images", &mix_images<float>, nb::arg("images").noconvert(), nb::arg("pairs").noconvert(),
          "level"_a = "best", kInPlace);
    m.def("mix_to_floats", &mix_images_to_floats, nb::arg("images").noconvert(), nb::arg("pairs").noconvert(),
          nb::kw_only(), nb::arg("out").noconvert(), "dtype"_a, "subtract"_a, "divide"_a, "level"_a = "best",
          "Write (mixed - subtract) / divide of bytes into a block, in the same layout; the bytes are overwritten.");
}

}  // namespace headrace
