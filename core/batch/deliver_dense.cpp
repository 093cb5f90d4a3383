// Delivery of masks, depth and normals: checks of the source, and resampling of its window into the batch.
#include <cmath>
#include <string>

#include "batch/sample_worker.hpp"
#include "batch/timed_sink.hpp"
#include "batch/windows.hpp"

namespace headrace {

namespace {

using Image = SampleWorker::Image;

std::string kind_of(const Image& image) {
    static const char* const colors[] = {"grey", "", "RGB", "palette", "grey and alpha", "", "RGB and alpha"};
    if (image.kind == Image::Kind::jpeg) return "JPEG";
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
    if (image.kind == Image::Kind::jpeg)
        refuse("a mask whose values are as they were written", image, "save masks as PNG");
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
    if (image.kind == Image::Kind::jpeg) return {PixelType::u8, 3, 4, 0, 0};
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

}  // namespace

void SampleWorker::deliver_mask(const ImageField& field, std::uint8_t* out, const Image& image, const View& view) {
    const PixelType type = samples_of_mask(image);
    mask_.start(field.mask, out, Placement::of(view), type);
    if (lands_nowhere(view)) return;
    const Window window = scaled_window(view, image.width, image.height, 8);
    const Reach reach = reach_of(window, Filter::nearest);
    nearest_.start(window, size_of(type), reach.top, 0, mask_);
    send_samples(image, type, window, reach.top, reach.bottom, nearest_);
}

void SampleWorker::deliver_depth(const ImageField& field, int sample, const Image& image, const View& view) {
    const PixelType type = samples_of_depth(image);
    std::uint8_t* out = field.out + static_cast<std::size_t>(sample) * field.bytes();
    std::uint8_t* valid = field.valid == nullptr ? nullptr : field.valid + sample * field.pixels();
    depth_.start(field.depth, out, valid, Placement::of(view), type);
    if (lands_nowhere(view)) return;
    const Window window = scaled_window(view, image.width, image.height, 8);
    const Reach reach = reach_of(window, Filter::nearest);
    const bool counts = field.depth.quantiles && type == PixelType::u16;  // needs every row, whatever the window
    nearest_.start(window, size_of(type), counts ? 0 : reach.top, 0, depth_);
    if (counts) depth_counter_.start(image.width, nearest_);
    RowSink& sink = counts ? static_cast<RowSink&>(depth_counter_) : nearest_;
    send_samples(image, type, window, counts ? 0 : reach.top, counts ? image.height : reach.bottom, sink);
    DepthMap map;
    const std::int64_t since = now_ns();
    if (field.depth.quantiles) {
        const auto pixels = static_cast<std::size_t>(image.width) * image.height;
        const DepthQuantiles q =
            counts ? depth_counter_.quantiles(field.depth)
                   : quantiles_of({reinterpret_cast<const float*>(image.pixels.data), pixels}, field.depth);
        map = DepthMap::between(field.depth, q.low, q.high);
    }
    depth_.finish(map);
    counters_[static_cast<int>(Stage::resample)].add(now_ns() - since, 0, 0);
}

void SampleWorker::deliver_vectors(const ImageField& field, std::uint8_t* out, const Image& image, const View& view) {
    check_normals(image);
    const Window window = scaled_window(view, image.width, image.height, 8);
    if (!is_vectors(image)) {
        Format format = field.format;
        if (view.hflip) format.divide[0] = -format.divide[0];
        if (view.vflip) format.divide[1] = -format.divide[1];
        target_.start(format, out, Placement::of(view));
        if (!lands_nowhere(view)) send_picture(field, format, image, window, 8, target_);
        return;
    }
    vectors_.start(field.format.dtype, out, Placement::of(view), view.hflip ? -1.0F : 1.0F, view.vflip ? -1.0F : 1.0F);
    if (lands_nowhere(view)) return;
    const Reach reach = reach_of(window, Filter::nearest);
    nearest_.start(window, 3 * size_of(PixelType::f32), reach.top, 0, vectors_);
    send_samples(image, PixelType::f32, window, reach.top, reach.bottom, nearest_);
}

void SampleWorker::deliver_wide(const ImageField& field, std::uint8_t* out, const Image& image, const View& view) {
    const WideSampler::Source source = wide_source(image, field.format);
    const Channels channels = channels_of(image, source.channels, field.format.channels);
    wide_.start(field.format, field.wide, out, Placement::of(view));
    if (lands_nowhere(view)) return;
    const Window window = scaled_window(view, image.width, image.height, 8);
    const Reach reach = reach_of(window, field.filter);
    const std::int64_t since = now_ns();
    TimedSink timed(wide_);
    WideSampler::Source rows = source;
    rows.first_row = reach.top;
    if (image.kind == Image::Kind::jpeg) rows.first_column = jpeg_.begin(8, reach.left, reach.right).first;
    wide_.begin(window, field.filter, rows, channels);
    if (image.kind == Image::Kind::jpeg) {
        jpeg_.decode(reach.top, reach.bottom, timed);
    } else if (image.kind == Image::Kind::png) {
        png_.decode(reach.top, reach.bottom, Layout::samples, timed);
    } else {
        const std::size_t stride =
            static_cast<std::size_t>(image.width) * image.pixels.channels * size_of(image.pixels.type);
        timed.take(image.pixels.data + reach.top * stride, stride, reach.bottom - reach.top);
    }
    wide_.finish();
    count_rows(since, timed.spent_ns(), image.bytes, static_cast<std::int64_t>(field.format.bytes()));
}

void SampleWorker::send_samples(const Image& image, PixelType type, const Window& window, int top, int bottom,
                                RowSink& sink) {
    const std::int64_t since = now_ns();
    TimedSink timed(sink);
    if (image.kind == Image::Kind::png) {
        png_.decode(top, bottom, type == PixelType::u16 ? Layout::raw16 : Layout::raw8, timed);
    } else {
        const std::size_t stride =
            static_cast<std::size_t>(image.width) * image.pixels.channels * size_of(image.pixels.type);
        timed.take(image.pixels.data + top * stride, stride, bottom - top);
    }
    count_rows(since, timed.spent_ns(), image.bytes, std::int64_t{size_of(type)} * window.width * window.height);
}

}  // namespace headrace
