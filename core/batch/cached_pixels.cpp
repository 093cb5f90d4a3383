#include "batch/cached_pixels.hpp"

#include <algorithm>

#include "batch/views.hpp"
#include "view/sample.hpp"

namespace headrace {

namespace {

void reverse_row(std::uint8_t* row, std::size_t width, std::size_t pixel_bytes) {
    if (pixel_bytes == 1) {
        std::reverse(row, row + width);
        return;
    }
    std::uint8_t* left = row;
    std::uint8_t* right = row + (width - 1) * pixel_bytes;
    for (; left < right; left += pixel_bytes, right -= pixel_bytes) std::swap_ranges(left, left + pixel_bytes, right);
}

// Flips planes of pixels in place, equal to the result of a view with flips.
void mirror(std::uint8_t* plane, std::size_t planes, const Format& format, std::size_t pixel_bytes, const View& view) {
    const auto width = static_cast<std::size_t>(format.width), height = static_cast<std::size_t>(format.height);
    const std::size_t stride = width * pixel_bytes;
    for (; planes > 0; --planes, plane += height * stride) {
        for (std::size_t y = 0; view.hflip && y < height; ++y) reverse_row(plane + y * stride, width, pixel_bytes);
        for (std::size_t y = 0; view.vflip && y < height / 2; ++y)
            std::swap_ranges(plane + y * stride, plane + (y + 1) * stride, plane + (height - 1 - y) * stride);
    }
}

}  // namespace

FinalPixels::FinalPixels(const FieldItem& item, const Chain& chain, Scratch& canvas)
    : item_(item), format_(item.field.format) {
    const ImageField& field = item.field;
    if (field.as<PictureOptions>() && (format_.dtype != DType::uint8 || !chain.empty())) {
        format_.dtype = DType::uint8;
        parts_[0] = Part(canvas.reserve(format_.bytes()), format_.bytes());
        return;
    }
    parts_[0] = Part(item.out(), field.bytes());
    if (item.valid() == nullptr) return;
    parts_[1] = Part(item.valid(), field.pixels());
    count_ = 2;
}

bool FinalPixels::read(const Store::Item& cached) const {
    return item_.field.cache.store->read(item_.entry(), cached, std::span(parts_).first(count_));
}

void FinalPixels::put(const Image& image) const {
    if (!item_.job.may_keep(item_.sample)) return;
    const ConstPart parts[kMostParts] = {parts_[0], parts_[1]};
    item_.field.cache.store->put(item_.entry(), std::span(parts).first(count_), image.width, image.height);
}

void FinalPixels::flip(const View& view) const {
    const std::size_t pixels = item_.field.pixels();
    if ((!view.hflip && !view.vflip) || pixels == 0) return;
    const bool single = item_.field.as<MaskOptions>() || item_.field.as<DepthOptions>();
    const std::size_t planes = format_.planar && !single ? format_.channels : 1;
    mirror(data(), planes, format_, parts_[0].size() / (planes * pixels), view);
    if (count_ > 1) mirror(parts_[1].data(), 1, format_, 1, view);
}

// Describes the copy, without its pixels.
Image Shrinker::size_of_copy(const FieldItem& item, const Image& image) {
    const std::int64_t most = item.field.as<PictureOptions>()->shrink_to, shorter = std::min(image.width, image.height);
    const auto shrunk = [&](std::int64_t side) {  // rounded to the nearest pixel
        const std::int64_t rounded = (2 * side * most + shorter) / (2 * shorter);
        return static_cast<int>(shorter <= most ? side : std::max<std::int64_t>(1, rounded));
    };
    const int width = shrunk(image.width), height = shrunk(image.height), channels = item.field.format.channels;
    const std::size_t bytes = static_cast<std::size_t>(width) * height * channels;
    return {.width = width,
            .height = height,
            .pixels = {nullptr, bytes, width, height, channels, PixelType::u8},
            .bytes = bytes};
}

Image Shrinker::make(const FieldItem& item, const Image& image) {
    Image copy = size_of_copy(item, image);
    pixels_.resize(copy.bytes);
    copy.pixels.data = pixels_.data();
    Format format = item.field.format;
    format.dtype = DType::uint8;
    format.planar = false;
    View view = sample_view({}, 0, 0, 0, 0, image.width, image.height);  // the whole image, as large as the copy
    format.width = view.width = view.inner_width = copy.width;
    format.height = view.height = view.inner_height = copy.height;
    pictures_.write(*item.field.as<PictureOptions>(), format, pixels_.data(), image, view, {});
    if (item.field.cache.cut == Cut::shrunk && item.job.may_keep(item.sample)) {
        const ConstPart part(pixels_);
        item.field.cache.store->put(item.entry(), {&part, 1}, image.width, image.height);
    }
    return copy;
}

std::optional<Image> Shrinker::read(const FieldItem& item, const Store::Item& cached) {
    const std::int64_t since = now_ns();
    clock_.enter(Stage::read);
    Store& store = *item.field.cache.store;
    Image copy = size_of_copy(item, image_of(cached));
    if (copy.bytes != cached.bytes) {
        store.reject(item.entry(), cached);
        return std::nullopt;
    }
    pixels_.resize(copy.bytes);
    const Part part(pixels_);
    if (!store.read(item.entry(), cached, {&part, 1})) return std::nullopt;
    clock_.spent(Stage::read, since, copy.bytes);
    copy.pixels.data = pixels_.data();
    return copy;
}

View Shrinker::scaled(const View& view, const Image& image, const Image& copy) {
    const bool same = copy.width == image.width && copy.height == image.height;
    const View scaled = same ? view : scale_view(view, image.width, image.height, copy.width, copy.height);
    check_view(scaled, copy.width, copy.height);
    return scaled;
}

}  // namespace headrace
