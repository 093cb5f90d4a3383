#include <algorithm>
#include <cmath>
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

using Rows = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Passes = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Boxes = nb::ndarray<double, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using Points = nb::ndarray<double, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Masks = nb::ndarray<std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

Chain geometric(const AugmentProgram& program, const Stream& stream, int width, int height) {
    Chain chain = draw_chain(program, stream, width, height);
    std::erase_if(chain, [](const DrawnOp& op) { return !is_geometric(op.kind); });
    return chain;
}

// Draws for the samples of a batch, with places grouped by sample.
struct Draws {
    const AugmentProgram& program;
    std::uint64_t key;
    Rows ids;
    Passes passes;
    int width, height;

    // Calls move(warper, first, last) for each geometric operation of each sample with places.
    template <typename Move>
    void each(const Rows& rows, const Move& move) const {
        Warper warper(best_level());
        for (std::size_t first = 0, last = 0; first < rows.size(); first = last) {
            const auto row = static_cast<std::size_t>(rows.data()[first]);
            while (last < rows.size() && rows.data()[last] == rows.data()[first]) ++last;
            const Stream stream{key, static_cast<std::uint64_t>(ids.data()[row]), passes.data()[row], 0, 0};
            for (const DrawnOp& op : geometric(program, stream, width, height)) {
                warper.start(op, width, height);
                move(warper, first, last);
            }
        }
    }

    void check(const Rows& rows, std::size_t places) const {
        if (rows.size() != places || passes.size() != ids.size() || width < 1 || height < 1)
            throw nb::value_error("expected a row of each place, a pass of each sample and a size of at least 1");
        for (std::size_t i = 0; i < rows.size(); ++i)
            if (rows.data()[i] < 0 || static_cast<std::size_t>(rows.data()[i]) >= ids.size())
                throw nb::value_error("expected rows of the batch");
    }
};

// Replaces the box by the bounding box of its moved corners, clipped to the image. Returns the fraction of that area
// inside the image; 0 for a box with a corner that the operation does not map.
double move_box(const Warper& warper, double* box, double width, double height) {
    double least[2], most[2];
    for (int corner = 0; corner < 4; ++corner) {
        double at[2] = {box[corner % 2 == 0 ? 0 : 2], box[corner < 2 ? 1 : 3]};
        warper.follow(at[0], at[1]);
        for (int axis = 0; axis < 2; ++axis) {
            if (!std::isfinite(at[axis])) return 0;
            least[axis] = corner == 0 ? at[axis] : std::min(least[axis], at[axis]);
            most[axis] = corner == 0 ? at[axis] : std::max(most[axis], at[axis]);
        }
    }
    double share = 1;
    for (int axis = 0; axis < 2; ++axis) {
        const double whole = most[axis] - least[axis], side = axis == 0 ? width : height;
        box[axis] = std::clamp(least[axis], 0.0, side);
        box[2 + axis] = std::clamp(most[axis], 0.0, side);
        share = whole > 0 ? share * (box[2 + axis] - box[axis]) / whole : 0;
    }
    return share;
}

nb::ndarray<nb::numpy, double> move_boxes(const PyAugmentation& augmentation, const Boxes& boxes, const Rows& rows,
                                          std::uint64_t key, const Rows& ids, const Passes& passes, int width,
                                          int height) {
    const Draws draws{*augmentation.program, key, ids, passes, width, height};
    draws.check(rows, boxes.shape(0));
    auto shares = std::make_unique<double[]>(rows.size());
    std::fill_n(shares.get(), rows.size(), 1.0);
    {
        nb::gil_scoped_release released;
        draws.each(rows, [&](const Warper& warper, std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i)
                shares[i] *= move_box(warper, boxes.data() + 4 * i, width, height);
        });
    }
    nb::capsule owner(shares.get(), [](void* p) noexcept { delete[] static_cast<double*>(p); });
    return nb::ndarray<nb::numpy, double>(shares.release(), {rows.size()}, owner);
}

nb::ndarray<nb::numpy, bool> move_points(const PyAugmentation& augmentation, const Points& points, const Rows& rows,
                                         std::uint64_t key, const Rows& ids, const Passes& passes, int width,
                                         int height) {
    const Draws draws{*augmentation.program, key, ids, passes, width, height};
    draws.check(rows, points.shape(0));
    auto inside = std::make_unique<bool[]>(rows.size());
    std::fill_n(inside.get(), rows.size(), true);
    {
        nb::gil_scoped_release released;
        draws.each(rows, [&](const Warper& warper, std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) {
                double* const at = points.data() + 2 * i;
                warper.follow(at[0], at[1]);
                inside[i] = inside[i] && at[0] >= 0 && at[0] < width && at[1] >= 0 && at[1] < height;
            }
        });
    }
    nb::capsule owner(inside.get(), [](void* p) noexcept { delete[] static_cast<bool*>(p); });
    return nb::ndarray<nb::numpy, bool>(inside.release(), {rows.size()}, owner);
}

void move_masks(const PyAugmentation& augmentation, const Masks& masks, std::uint64_t key, std::int64_t id,
                std::uint32_t pass) {
    const std::size_t pixels = masks.shape(1) * masks.shape(2);
    if (masks.size() == 0) return;
    const auto height = static_cast<int>(masks.shape(1)), width = static_cast<int>(masks.shape(2));
    nb::gil_scoped_release released;
    Warper warper(best_level());
    std::vector<std::uint8_t> from(pixels + 1);
    const Stream stream{key, static_cast<std::uint64_t>(id), pass, 0, 0};
    for (const DrawnOp& op : geometric(*augmentation.program, stream, width, height)) {
        warper.start(op, width, height);
        for (std::size_t k = 0; k < masks.shape(0); ++k) {
            std::uint8_t* const mask = masks.data() + k * pixels;
            std::copy(mask, mask + pixels, from.data());
            from[pixels] = 0;
            warper.nearest(1, from.data(), mask);
        }
    }
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
    m.def("move_boxes", &move_boxes, "augmentation"_a, nb::arg("boxes").noconvert(), nb::arg("rows").noconvert(),
          nb::kw_only(), "key"_a, nb::arg("ids").noconvert(), nb::arg("passes").noconvert(), "width"_a, "height"_a,
          "Moves boxes, xyxy, by their samples' geometric operations, in place; `rows` ascend. Returns which share of "
          "each stays in the image.");
    m.def("move_points", &move_points, "augmentation"_a, nb::arg("points").noconvert(), nb::arg("rows").noconvert(),
          nb::kw_only(), "key"_a, nb::arg("ids").noconvert(), nb::arg("passes").noconvert(), "width"_a, "height"_a,
          "Moves points by their samples' geometric operations, in place; `rows` ascend. Returns which stay in the "
          "image throughout.");
    m.def("move_masks", &move_masks, "augmentation"_a, nb::arg("masks").noconvert(), nb::kw_only(), "key"_a, "id"_a,
          "pass_"_a, "Moves the masks [k, H, W] of one sample by its geometric operations, in place; 0 outside.");
    m.def(
        "exact_sin_cos",
        [](double degrees) {
            const SinCos both = exact_sin_cos(degrees);
            return std::make_tuple(both.sin, both.cos);
        },
        "degrees"_a);
}

}  // namespace headrace
