#include "batch/dense_writer.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "batch/views.hpp"

namespace headrace {

namespace {

std::string kind_of(const Image& image) {
    static const char* const colors[] = {"grey", "", "RGB", "palette", "grey and alpha", "", "RGB and alpha"};
    if (image.kind == Image::Kind::jpeg) return "JPEG";
    if (image.kind == Image::Kind::y4m) return "Y4M";
    if (image.kind == Image::Kind::png) {
        return std::to_string(image.png.bit_depth) + "-bit PNG of " + colors[image.png.color_type];
    }
    const char* const types[] = {"8-bit", "16-bit", "float"};
    return std::string("an image of ") + types[static_cast<int>(image.pixels.type)] + " values, " +
           std::to_string(image.pixels.channels) + (image.pixels.channels == 1 ? " channel" : " channels");
}

[[noreturn]] void refuse(const char* expected, const Image& image, const char* advice) {
    throw Fault(Code::unsupported, std::string("expected ") + expected + ", got " + kind_of(image) + "; " + advice);
}

bool is_grey(const Image& image) {
    if (image.kind == Image::Kind::png) return image.png.color_type == 0;
    return image.kind == Image::Kind::pixels && image.pixels.channels == 1;
}

PixelType samples_of_mask(const Image& image) {
    const bool palette = image.kind == Image::Kind::png && image.png.color_type == 3;
    const bool floats = image.kind == Image::Kind::pixels && image.pixels.type == PixelType::f32;
    if (image.is_color()) refuse("a mask whose values are as they were written", image, "save masks as PNG");
    if (!(is_grey(image) || palette) || floats)
        refuse("a mask of one channel, palette or grey", image, "convert colours to indices once");
    if (image.kind == Image::Kind::pixels) return image.pixels.type;
    return image.png.bit_depth == 16 ? PixelType::u16 : PixelType::u8;
}

PixelType samples_of_depth(const Image& image) {
    const bool wide = image.kind == Image::Kind::png ? image.png.bit_depth == 16 : image.pixels.type != PixelType::u8;
    if (!is_grey(image) || !wide)
        refuse("depth of one channel, 16-bit grey or floats", image,
               "take the file that was measured, not its preview");
    return image.kind == Image::Kind::png ? PixelType::u16 : image.pixels.type;
}

bool is_vectors(const Image& image) {
    return image.kind == Image::Kind::pixels && image.pixels.type == PixelType::f32 && image.pixels.channels == 3;
}

void check_normals(const Image& image) {
    const bool bytes = image.kind == Image::Kind::png      ? image.png.bit_depth == 8 && image.png.color_type % 4 == 2
                       : image.kind == Image::Kind::pixels ? image.pixels.channels == 3
                                                           : true;
    if (!bytes && !is_vectors(image))
        refuse("normals of three channels, 8-bit or floats", image, "save others as .npy of floats");
}

// Format of the source's rows, from its first column on.
WideSampler::Source wide_source(const Image& image, const Format& format) {
    const bool whole = format.dtype == DType::uint8 || format.dtype == DType::uint16;
    if (image.is_color()) return {PixelType::u8, 3, 4, 0, 0};
    if (image.kind == Image::Kind::png) {
        static const int counts[] = {1, 0, 3, 3, 2, 0, 4};
        const int channels = counts[image.png.color_type];
        return {image.png.bit_depth == 16 ? PixelType::u16 : PixelType::u8, channels, channels, 0, 0};
    }
    if (whole && image.pixels.type == PixelType::f32)
        refuse("an image of whole numbers, as the field's dtype is", image, "take dtype=\"float32\"");
    return {image.pixels.type, image.pixels.channels, image.pixels.channels, 0, 0};
}

// Arrays must match; pictures have known colours, and alpha is the last of 2 or 4 channels.
Channels channels_of(const Image& image, int source, int wanted) {
    if (source == wanted) return Channels::same;
    if (wanted == 1 && source == 2) return Channels::first;
    if (wanted == 1 && (source == 3 || source == 4)) return Channels::luma;
    if (wanted == 3 && source == 4) return Channels::color;
    if (wanted == 3 && source <= 2) return Channels::grey_color;
    if (wanted == 4 && source == 3) return Channels::opaque;
    if (wanted == 4 && source == 1) return Channels::grey_opaque;
    if (wanted == 4 && source == 2) return Channels::grey_alpha;
    const std::string expected = "an image of " + std::to_string(wanted) + " channels";
    refuse(expected.c_str(), image, "name as many with channels=");
}

float half_value(std::uint16_t bits) {
    const std::uint32_t size = bits & 0x7FFFU, sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    if (size >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (size & 0x3FFU) << 13);
    if (size < 0x400U) return (sign != 0 ? -1.0F : 1.0F) * static_cast<float>(size) * 0x1p-24F;
    return std::bit_cast<float>(sign | ((size << 13) + 0x38000000U));
}

float load_float(DType dtype, const std::uint8_t* at) {
    if (dtype == DType::float32) {
        float value;
        std::memcpy(&value, at, 4);
        return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, at, 2);
    return dtype == DType::float16 ? half_value(bits) : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Value for coordinates outside, in the batch's type, at most 12 bytes.
struct Outside {
    std::uint8_t bytes[16] = {};
};

Outside outside_of(const ImageField& field, const Kernels& kernels) {
    Outside outside;
    if (const auto* mask = field.as<MaskOptions>()) std::memcpy(outside.bytes, &mask->ignore, 8);  // lowest first
    if (const auto* depth = field.as<DepthOptions>()) {
        const auto invalid = static_cast<float>(depth->format.invalid);
        store_floats(kernels, depth->format.dtype, &invalid, 1, outside.bytes);
    }
    return outside;
}

}  // namespace

void DenseWriter::write(const FieldItem& item, const Image& image, const View& view) {
    std::visit(
        [&](const auto& options) {
            if constexpr (!std::is_same_v<decltype(options), const PictureOptions&>) put(options, item, image, view);
        },
        item.field.content);
}

void DenseWriter::put(const MaskOptions& options, const FieldItem& item, const Image& image, const View& view) {
    const PixelType type = samples_of_mask(image);
    mask_.start(options, item.out(), Placement::of(view), type);
    pick(item.field.nearest, image, type, 1, view, mask_);
}

void DenseWriter::put(const DepthOptions& options, const FieldItem& item, const Image& image, const View& view) {
    const DepthFormat& format = options.format;
    const PixelType type = samples_of_depth(image);
    depth_.start(format, item.out(), item.valid(), Placement::of(view), type);
    if (lands_nowhere(view)) return;
    const auto alike = [&](const ImageField& other) {
        return other.as<DepthOptions>() && item.memory() == nullptr &&
               other.ranges.same_bytes(item.field.ranges, item.sample) && other.orient == item.field.orient;
    };
    const bool counts = type == PixelType::u16 && std::ranges::any_of(item.job.images, [&](const ImageField& other) {
                            return &other == &item.field ? format.quantiles
                                                         : alike(other) && other.as<DepthOptions>()->format.quantiles;
                        });
    if (!depth_field_ || !alike(*depth_field_) || depth_field_->nearest != item.field.nearest || depth_view_ != view) {
        depth_field_ = nullptr;
        pick(item.field.nearest, image, type, 1, view, depth_, counts);
        depth_field_ = &item.field;
        depth_view_ = view;
    }
    DepthMap map;
    const std::int64_t since = now_ns();
    if (format.quantiles) {
        const auto pixels = static_cast<std::size_t>(image.width) * image.height;
        const DepthQuantiles q =
            counts ? depth_counter_.quantiles(format)
                   : quantiles_of({reinterpret_cast<const float*>(image.pixels.data), pixels}, format);
        map = DepthMap::between(format, q.low, q.high);
    }
    depth_.finish(map);
    clock_.spent(Stage::resample, since, 0, 0);
}

// The signs are those of the source's x and y. If they swap, each also changes its sign where y points up.
void DenseWriter::put(const NormalsOptions& options, const FieldItem& item, const Image& image, const View& view) {
    check_normals(image);
    Format format = item.field.format;
    const float turned = view.transposed && options.y_up ? -1.0F : 1.0F;
    float across = view.hflip ? -turned : turned, down = view.vflip ? -turned : turned;
    if (view.transposed) std::swap(across, down);
    if (is_vectors(image)) {
        vectors_.start(format.dtype, item.out(), Placement::of(view), across, down);
        pick(item.field.nearest, image, PixelType::f32, 3, view, vectors_);
    } else {
        format.divide[0] *= across;
        format.divide[1] *= down;
        pictures_.write({.filter = item.field.nearest}, format, item.out(), image, view, {});
    }
    if (!view.transposed) return;
    const std::size_t bytes = size_of(format.dtype);
    for (std::uint8_t *at = item.out(), *const end = at + item.field.bytes(); at != end; at += 3 * bytes)
        std::swap_ranges(at, at + bytes, at + bytes);
}

void DenseWriter::put(const WideOptions& options, const FieldItem& item, const Image& image, const View& view) {
    const Format& format = item.field.format;
    WideSampler::Source source = wide_source(image, format);
    const Channels channels = channels_of(image, source.channels, format.channels);
    wide_.start(format, options.format, item.out(), Placement::of(view));
    if (lands_nowhere(view)) return;
    const Window window = scaled_window(view, image, 8);
    const Reach reach = reach_of(window, options.filter);
    const std::int64_t since = now_ns();
    TimedSink timed(wide_);
    source.first_row = reach.top;
    source.first_column = reader_.begin(image, 8, reach).first;
    wide_.begin(window, options.filter, source, channels);
    reader_.send(image, Layout::samples, timed);
    wide_.finish();
    clock_.spent_on_rows(since, timed.spent_ns(), image.bytes, static_cast<std::int64_t>(format.bytes()));
}

void DenseWriter::pick(Filter nearest, const Image& image, PixelType type, int values, const View& view, PixelRows& out,
                       bool counts) {
    if (lands_nowhere(view)) return;
    const Window window = scaled_window(view, image, 8);
    const Reach reach = counts ? Reach{0, 0, image.width, image.height} : reach_of(window, nearest);
    const int first = reader_.begin(image, 8, reach).first;
    nearest_.start(window, nearest, values * size_of(type), reach.top, first, out);
    if (counts) depth_counter_.start(image.width, nearest_);
    const std::int64_t since = now_ns();
    TimedSink timed(counts ? static_cast<RowSink&>(depth_counter_) : nearest_);
    reader_.send(image, type == PixelType::u16 ? Layout::raw16 : Layout::raw8, timed);
    const auto made = std::int64_t{size_of(type)} * window.width * window.height;
    clock_.spent_on_rows(since, timed.spent_ns(), image.bytes, made);
}

void DenseWarper::warp(const FieldItem& item, const Chain& chain) {
    if (chain.empty()) return;
    const ImageField& field = item.field;
    const std::int64_t since = now_ns();
    clock_.enter(Stage::augment);
    std::uint8_t *const out = item.out(), *const valid = item.valid();
    const Outside outside = outside_of(field, *kernels_), not_valid;
    const auto* normals = field.as<NormalsOptions>();
    for (const DrawnOp& op : chain) {
        warper_.start(op, field.format.width, field.format.height);
        warp_values(field.pixels(), field.bytes() / field.pixels(), outside.bytes, out);
        if (valid != nullptr) warp_values(field.pixels(), 1, not_valid.bytes, valid);
        if (normals != nullptr) turn_normals(field.format, normals->y_up, out);
    }
    clock_.spent(Stage::augment, since, field.bytes());
}

void DenseWarper::warp_values(std::size_t pixels, std::size_t bytes, const std::uint8_t* outside,
                              std::uint8_t* values) {
    std::uint8_t* const from = unwarped_.reserve(bytes * (pixels + 1));
    std::memcpy(from, values, bytes * pixels);
    std::memcpy(from + bytes * pixels, outside, bytes);
    warper_.nearest(bytes, from, values);
}

// Rotates vectors, preserving length and z. If y points up, the rotation is reversed.
void DenseWarper::turn_normals(const Format& format, bool y_up, std::uint8_t* normals) {
    const std::size_t bytes = size_of(format.dtype), row = 3 * static_cast<std::size_t>(format.width);
    const double sign = y_up ? -1 : 1;
    turned_.resize(row + 64);
    for (int y = 0; y < format.height; ++y, normals += row * bytes) {
        for (int x = 0; x < format.width; ++x) {
            float* const vector = turned_.data() + 3 * static_cast<std::size_t>(x);
            for (std::size_t k = 0; k < 3; ++k)
                vector[k] = load_float(format.dtype, normals + bytes * (3 * static_cast<std::size_t>(x) + k));
            const Warper::Turn turn = warper_.turn_at(x, y);
            const double across = vector[0], down = vector[1];
            vector[0] = static_cast<float>(turn.xx * across + sign * turn.yx * down);
            vector[1] = static_cast<float>(sign * turn.xy * across + turn.yy * down);
        }
        store_floats(*kernels_, format.dtype, turned_.data(), static_cast<int>(row), normals);
    }
}

}  // namespace headrace
