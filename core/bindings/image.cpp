#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "batch/sample_worker.hpp"
#include "bindings.hpp"
#include "common/level.hpp"
#include "image_options.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

using Table = nb::ndarray<const double, nb::shape<-1, kProgramColumns>, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<const std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Buffers and decoders of one thread, for every ImageDecoder that it uses. A lock could be inherited locked by a forked
// child if another thread was decoding; a thread's own state is consistent there.
SampleWorker& worker_of_this_thread(const Limits& limits) {
    struct Own {
        Limits limits;
        Counters counters;
        Retries retries;
        SampleWorker worker{best_level(), limits, counters, retries};
    };
    thread_local Own own;
    own.limits = limits;
    own.retries.given_up.store(false);  // independent single images: an earlier failure must not disable retries
    return own.worker;
}

// Scoped buffer of any object with a contiguous buffer. Acquire and release it with the GIL held.
class Buffer {
public:
    explicit Buffer(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    ~Buffer() { PyBuffer_Release(&view_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    Memory memory() const {
        static const std::uint8_t nothing = 0;  // a null pointer would mean "read it from the range"
        const auto* data = static_cast<const std::uint8_t*>(view_.buf);
        return {.data = data == nullptr ? &nothing : data, .size = static_cast<std::size_t>(view_.len)};
    }

private:
    Py_buffer view_;
};

nb::dlpack::dtype dtype_of(DType dtype) {
    if (dtype == DType::float32) return nb::dtype<float>();
    if (dtype == DType::float16) return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    return dtype == DType::bfloat16 ? nb::dtype<std::uint16_t>() : nb::dtype<std::uint8_t>();
}

nb::object array_of(std::unique_ptr<std::uint8_t[]> memory, const Format& format) {
    const std::size_t channels = format.channels, height = format.height, width = format.width;
    std::uint8_t* at = memory.get();
    const nb::capsule owner(memory.release(), [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
    const std::array<std::size_t, 3> planar{channels, height, width}, interleaved{height, width, channels};
    const auto& shape = format.planar ? planar : interleaved;
    return nb::cast(nb::ndarray<nb::numpy>(at, shape.size(), shape.data(), owner, nullptr, dtype_of(format.dtype)));
}

// Decoder that crops and resizes one image at a time in the calling thread. Immutable, so any thread may use it.
class ImageDecoder {
public:
    ImageDecoder(const Table& program, const PyImageOptions& options, const Limits& limits)
        : program_(parse_program({program.data(), program.size()})), limits_(limits), field_(options.field) {
        if (!field_.as<PictureOptions>()) throw nb::value_error("expected options of a picture");
    }

    nb::object decode_file(const nb::bytes& path, std::uint64_t key) const {
        const auto* name = static_cast<const std::uint8_t*>(path.data());
        const std::uint64_t offsets[] = {0, path.size()};
        ImageField field = field_;
        field.ranges.paths =
            std::make_shared<Paths>("", std::span(name, path.size()), std::span(offsets), false, false);
        static const std::int64_t first = 0;
        field.ranges.path_id = &first;
        return decode(std::move(field), key);
    }

    nb::object decode_bytes(nb::handle data, std::uint64_t key) const {
        const Buffer buffer(data);
        return decode_memory(buffer.memory(), key);
    }

    nb::object decode_pixels(const Pixels& pixels, std::uint64_t key) const {
        if (pixels.shape(2) != 1 && pixels.shape(2) != 3) throw nb::value_error("expected 1 or 3 channels");
        if (pixels.size() == 0) throw nb::value_error("expected at least one pixel");
        return decode_memory({pixels.data(), pixels.size(), static_cast<int>(pixels.shape(1)),
                              static_cast<int>(pixels.shape(0)), static_cast<int>(pixels.shape(2))},
                             key);
    }

private:
    nb::object decode_memory(const Memory& memory, std::uint64_t key) const {
        ImageField field = field_;
        field.memory.push_back(memory);
        return decode(std::move(field), key);
    }

    nb::object decode(ImageField field, std::uint64_t key) const {
        const std::int64_t id = 0;
        const std::uint32_t pass = 0;
        Job job;
        job.samples = 1;
        job.ids = job.draw_ids = &id;
        job.passes = &pass;
        job.key = key;
        job.program = program_;
        job.images.push_back(std::move(field));
        std::unique_ptr<std::uint8_t[]> memory;
        try {
            const nb::gil_scoped_release released;
            worker_of_this_thread(limits_).decode_one(job, [&](const Format& format) {
                memory = std::make_unique_for_overwrite<std::uint8_t[]>(format.bytes());
                return memory.get();
            });
        } catch (const Fault& fault) {
            return nb::make_tuple(static_cast<int>(fault.code), text_of(fault.what()));
        }
        return array_of(std::move(memory), job.images.front().format);
    }

    std::vector<ViewOp> program_;
    Limits limits_;
    ImageField field_;  // common to all images
};

}  // namespace

void bind_image(nb::module_& m) {
    nb::class_<PyImageOptions>(m, "ImageOptions", "What an image field becomes, the same for every batch.")
        .def(
            "__init__",
            [](PyImageOptions* self, int channels, const std::string& dtype, bool planar,
               const std::vector<float>& subtract, const std::vector<float>& divide, const std::vector<int>& fill,
               const std::string& filter, double dct_margin, bool orient,
               const std::optional<std::vector<int>>& background, int shrink_to, const std::optional<MaskNumbers>& mask,
               const std::optional<DepthNumbers>& depth, std::optional<bool> normals,
               const std::optional<WideNumbers>& wide, std::uint64_t name_hash, const std::optional<ViewTable>& view,
               int copies, int decoded_with, int scale, const PyAugmentation* augment) {
                PyImageOptions options;
                ImageField& field = options.field;
                if (mask.has_value() + depth.has_value() + normals.has_value() + wide.has_value() > 1)
                    throw nb::value_error("expected at most one of mask=, depth=, normals= and wide=");
                if (!(dct_margin == 0 || dct_margin >= 1))
                    throw nb::value_error("expected dct_margin of 0, or at least 1");
                if (shrink_to < 0) throw nb::value_error("expected shrink_to of at least 0");
                if (!wide) field.format = parse_format(channels, dtype, planar, subtract, divide, fill);
                const Filter of_pixels = parse_filter(filter);
                if ((mask || depth || normals) && !is_nearest(of_pixels))
                    throw nb::value_error("expected masks, depth and normals with a nearest filter");
                field.nearest = of_pixels;
                field.orient = orient;
                field.composite = background.has_value();
                if (mask) {
                    options.take_mask(*mask);
                } else if (depth) {
                    field.content = DepthOptions{parse_depth(*depth)};
                } else if (normals) {
                    options.take_normals(*normals);
                } else if (wide) {
                    WideOptions of_wide{{}, of_pixels};
                    field.format = parse_wide(*wide, dtype, planar, of_wide.format);
                    field.content = std::move(of_wide);
                } else {
                    field.content = PictureOptions{of_pixels, dct_margin, shrink_to};
                }
                options.take_augment(augment);
                field.name_hash = name_hash;
                options.take_view(view, copies, decoded_with, scale);
                new (self) PyImageOptions(std::move(options));
            },
            nb::kw_only(), "channels"_a = 3, "dtype"_a = "uint8", "planar"_a = false,
            "subtract"_a = std::vector<float>(3, 0.0F), "divide"_a = std::vector<float>(3, 255.0F),
            "fill"_a = std::vector<int>(3, 0), "filter"_a = "triangle", "dct_margin"_a = 0.0, "orient"_a = false,
            "background"_a = nb::none(), "shrink_to"_a = 0, "mask"_a = nb::none(), "depth"_a = nb::none(),
            "normals"_a = nb::none(), "wide"_a = nb::none(), "name_hash"_a = 0, "view"_a = nb::none(), "copies"_a = 1,
            "decoded_with"_a = -1, "scale"_a = 1, nb::arg("augment").none() = nb::none());

    nb::class_<ImageDecoder>(m, "ImageDecoder",
                             "Decodes, cuts and resizes one image at a time in the calling thread, without the GIL.\n"
                             "Every method returns an array [C, H, W] (planar) or [H, W, C], bfloat16 as uint16; or\n"
                             "the code (core/common/fault.hpp) and the text of what is wrong with the image.")
        .def(nb::init<const Table&, const PyImageOptions&, const Limits&>(), nb::arg("program").noconvert(),
             "options"_a, nb::kw_only(), "limits"_a)
        .def("decode_file", &ImageDecoder::decode_file, "path"_a, "key"_a)
        .def("decode_bytes", &ImageDecoder::decode_bytes, "data"_a, "key"_a)
        .def("decode_pixels", &ImageDecoder::decode_pixels, nb::arg("pixels").noconvert(), "key"_a);
}

}  // namespace headrace
