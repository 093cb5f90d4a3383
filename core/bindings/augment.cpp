#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "augment/augmenter.hpp"
#include "augment/draw.hpp"
#include "augment/geometry.hpp"
#include "bindings.hpp"
#include "common/fault.hpp"
#include "image_options.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

using AugmentTable = nb::ndarray<const double, nb::shape<-1, kAugmentColumns>, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<const std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using PyChain = std::vector<std::tuple<int, std::vector<double>>>;

PyChain drawn(const PyAugmentation& augmentation, std::uint64_t key, std::uint64_t id, std::uint32_t pass, int width,
              int height, std::uint16_t dataset) {
    PyChain list;
    for (const DrawnOp& op : draw_chain(*augmentation.program, Stream{key, id, pass, dataset, 0}, width, height))
        list.emplace_back(op.kind, std::vector<double>(op.args, op.args + kDrawnArgs));
    return list;
}

Chain chain_of(const PyChain& list) {
    Chain chain;
    for (const auto& [kind, args] : list) {
        if (args.size() > kDrawnArgs) throw nb::value_error("expected at most 14 numbers an operation");
        DrawnOp op{kind, {}};
        std::copy(args.begin(), args.end(), op.args);
        chain.push_back(op);
    }
    return chain;
}

nb::ndarray<nb::numpy, std::uint8_t> applied(const Pixels& pixels, const PyChain& list, const std::string& level) {
    const auto height = pixels.shape(0), width = pixels.shape(1), channels = pixels.shape(2);
    if ((channels != 1 && channels != 3) || pixels.size() == 0) throw nb::value_error("expected 1 or 3 channels");
    Format format;
    format.channels = static_cast<int>(channels);
    format.width = static_cast<int>(width);
    format.height = static_cast<int>(height);
    auto out = std::make_unique<std::uint8_t[]>(pixels.size());
    const Chain chain = chain_of(list);
    Augmenter augmenter(parse_level(level));
    Target target(kernels(parse_level(level)));
    try {
        augmenter.load(format, pixels.data());
        augmenter.run(chain, channels == 1);
    } catch (const Fault& fault) {
        throw nb::value_error(fault.what());
    }
    target.store(format, augmenter.canvas(), out.get());
    for (const DrawnOp& op : chain)
        if (op.kind == kErase) augmenter.erase(format, op, out.get());
    nb::capsule owner(out.get(), [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
    return nb::ndarray<nb::numpy, std::uint8_t>(out.release(), {height, width, channels}, owner);
}

}  // namespace

void bind_augment(nb::module_& m) {
    m.attr("AUGMENT_COLUMNS") = static_cast<int>(kAugmentColumns);
    nb::class_<PyAugmentation>(m, "Augmentation", "A program of augmentations (core/augment/program.hpp).")
        .def(
            "__init__",
            [](PyAugmentation* self, const AugmentTable& table) {
                try {
                    new (self)
                        PyAugmentation{std::make_shared<AugmentProgram>(parse_augment({table.data(), table.size()}))};
                } catch (const Fault& fault) {
                    throw nb::value_error(fault.what());
                }
            },
            nb::arg("table").noconvert());
    m.def("draw_chain", &drawn, "augmentation"_a, "key"_a, "id"_a, "pass_"_a, nb::kw_only(), "width"_a, "height"_a,
          "dataset"_a = 0, "The operations, as (kind, numbers), that one image gets (core/augment/draw.hpp).");
    m.def("apply_chain", &applied, nb::arg("pixels").noconvert(), "chain"_a, nb::kw_only(), "level"_a = "best",
          "The image, uint8 [H, W, 1 or 3], after such operations.");
    m.def(
        "exact_sin_cos",
        [](double degrees) {
            const SinCos both = exact_sin_cos(degrees);
            return std::make_tuple(both.sin, both.cos);
        },
        "degrees"_a);
}

}  // namespace headrace
