// Conversion of an image field's options from Python to the core, and of the core's messages to Python.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "batch/job.hpp"
#include "resample/resampler.hpp"
#include "resample/target.hpp"

namespace headrace {

// Returns the enumerator with this name. Throws ValueError for other names.
template <typename Enum, std::size_t count>
Enum parse_name(const std::string& name, const char* const (&names)[count], const char* expected) {
    for (std::size_t i = 0; i < count; ++i) {
        if (name == names[i]) return static_cast<Enum>(i);
    }
    throw nanobind::value_error(expected);
}

inline DType parse_dtype(const std::string& name) {
    return parse_name<DType>(name, {"uint8", "float32", "float16", "bfloat16", "uint16"},
                             "expected dtype uint8, float32, float16, bfloat16 or uint16");
}

inline Cut parse_cut(const std::string& name) {
    return parse_name<Cut>(name, {"none", "file", "shrunk", "final"}, "expected cut none, file, shrunk or final");
}

// dtype, scale, invalid, near, far; low, high, the range that they become, and whether to clip to it.
using QuantileNumbers = std::tuple<double, double, double, double, bool>;
using DepthNumbers = std::tuple<std::string, double, double, double, double, std::optional<QuantileNumbers>>;

inline DepthFormat parse_depth(const DepthNumbers& numbers) {
    DepthFormat f;
    std::optional<QuantileNumbers> quantiles;
    std::string dtype;
    std::tie(dtype, f.scale, f.invalid, f.near, f.far, quantiles) = numbers;
    f.dtype = parse_dtype(dtype);
    if (f.dtype == DType::uint8 || f.dtype == DType::uint16) throw nanobind::value_error("expected depth of floats");
    f.quantiles = quantiles.has_value();
    if (quantiles) std::tie(f.low, f.high, f.range_low, f.range_high, f.clip) = *quantiles;
    return f;
}

// Parses the format, without its size. Throws ValueError for invalid values.
inline Format parse_format(int channels, const std::string& dtype, bool planar, const std::vector<float>& subtract,
                           const std::vector<float>& divide, const std::vector<int>& fill) {
    Format f;
    if (channels != 1 && channels != 3) throw nanobind::value_error("expected 1 or 3 channels");
    if (subtract.size() != 3 || divide.size() != 3 || fill.size() != 3)
        throw nanobind::value_error("expected 3 values");
    f.channels = channels;
    f.planar = planar;
    f.dtype = parse_dtype(dtype);
    if (f.dtype == DType::uint16) throw nanobind::value_error("expected uint16 of wide pictures alone");
    for (int c = 0; c < 3; ++c) {
        f.subtract[c] = subtract[c];
        f.divide[c] = divide[c];
        f.fill[c] = static_cast<std::uint8_t>(fill[c]);
    }
    return f;
}

// Parses the format of a wide picture: subtract, divide and fill of each channel (dense/wide_sampler.hpp). Throws
// ValueError for invalid values.
using WideNumbers = std::tuple<std::vector<double>, std::vector<double>, std::vector<double>>;

inline Format parse_wide(const WideNumbers& numbers, const std::string& dtype, bool planar, WideFormat& wide) {
    std::tie(wide.subtract, wide.divide, wide.fill) = numbers;
    const std::size_t channels = wide.fill.size();
    if (channels == 0 || channels > static_cast<std::size_t>(kMostChannels) || wide.subtract.size() != channels ||
        wide.divide.size() != channels)
        throw nanobind::value_error("expected three numbers for each of 1 to 512 channels");
    Format f;
    f.channels = static_cast<int>(channels);
    f.planar = planar;
    f.dtype = parse_dtype(dtype);
    return f;
}

inline Filter parse_filter(const std::string& name) {
    return parse_name<Filter>(
        name,
        {"triangle", "nearest", "bicubic", "linear", "lanczos", "nearest-exact", "nearest-opencv", "nearest-torch"},
        "expected filter triangle, bicubic, linear, lanczos, nearest, nearest-exact, nearest-opencv or nearest-torch");
}

// Bytes per value, ignore, and the table of MaskFormat.
using MaskTable = nanobind::ndarray<const std::int64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using ViewTable =
    nanobind::ndarray<const double, nanobind::shape<-1, kProgramColumns>, nanobind::c_contig, nanobind::device::cpu>;
using MaskNumbers = std::tuple<int, std::int64_t, MaskTable>;

// Program of augmentations, parsed once.
struct PyAugmentation {
    std::shared_ptr<const AugmentProgram> program;
};

// Description of an image field, the same for every batch.
struct PyImageOptions {
    ImageField field;
    std::optional<MaskTable> table;  // of a mask; the field borrows it

    void take_mask(const MaskNumbers& numbers) {
        const auto& [bytes, ignore, values] = numbers;
        if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) throw nanobind::value_error("expected 1 to 8 bytes");
        if (values.size() != MaskFormat::kValues) throw nanobind::value_error("expected a table of 65,536 values");
        field.content = MaskOptions{bytes, ignore, values.data()};
        table = values;
    }

    void take_normals(bool y_up) {
        if (field.format.dtype == DType::uint8 || field.format.planar || field.format.channels != 3) {
            throw nanobind::value_error("expected normals as three interleaved floats");
        }
        field.format.fill_zero = true;
        field.content = NormalsOptions{y_up};
    }

    void take_augment(const PyAugmentation* augment) {
        if (augment == nullptr) return;
        auto* picture = std::get_if<PictureOptions>(&field.content);
        if (!picture) throw nanobind::value_error("expected augment= of a picture");
        picture->augment = augment->program;
    }

    // Sets the view and copies of a field that does not follow the job's view, or the scale of a field that does.
    void take_view(const std::optional<ViewTable>& view, int copies, int decoded_with, int scale) {
        auto* picture = std::get_if<PictureOptions>(&field.content);
        if (copies < 1 || copies > kMostCopies) throw nanobind::value_error("expected 1 to 64 copies");
        if (view) {
            field.own_view = parse_program({view->data(), view->size()});
            if (const auto own = copies_of(*field.own_view); own && *own != copies)
                throw nanobind::value_error("expected as many copies as the view makes");
        }
        if (scale < 1 || (scale > 1 && view))
            throw nanobind::value_error("expected scale of at least 1, and without a view of its own");
        field.scale = scale;
        if (copies > 1 && (!view || decoded_with < 0))
            throw nanobind::value_error("expected copies to have a view of their own, and to be decoded together");
        if (!picture && (decoded_with >= 0 || (view && !field.as<WideOptions>())))
            throw nanobind::value_error("expected pictures to have their own view, or to be decoded together");
        if (!picture) return;
        picture->copies = copies;
        picture->decoded_with = decoded_with;
    }
};

// Converts a message to str; paths in it may not be UTF-8.
inline nanobind::object text_of(const std::string& why) {
    return nanobind::steal<nanobind::object>(
        PyUnicode_DecodeUTF8(why.data(), static_cast<Py_ssize_t>(why.size()), "backslashreplace"));
}

}  // namespace headrace
