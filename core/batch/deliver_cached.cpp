// Delivery of cached images, and caching of new ones.
#include <algorithm>

#include "batch/sample_worker.hpp"
#include "batch/windows.hpp"

namespace headrace {

namespace {

// True for pictures that are processed after the cached stage: converted to floats, or augmented.
bool is_made_of_kept(const ImageField& field, const Chain& chain) {
    return field.content == Content::picture && (field.format.dtype != DType::uint8 || !chain.empty());
}

Format as_bytes(Format format) {
    format.dtype = DType::uint8;
    return format;
}

bool is_in_memory(const ImageField& field, int sample) {
    return !field.memory.empty() && field.memory[sample].data != nullptr;
}

// Canvas in the batch's format, or in bytes for pictures that become floats.
Canvas canvas_of(const ImageField& field, std::uint8_t* data) {
    const auto width = static_cast<std::size_t>(field.format.width),
               height = static_cast<std::size_t>(field.format.height);
    if (field.content == Content::mask) return {data, 1, height, width, static_cast<std::size_t>(field.mask.bytes)};
    if (field.content == Content::depth) return {data, 1, height, width, size_of(field.depth.dtype)};
    const std::size_t value = field.content == Content::picture ? 1 : size_of(field.format.dtype);
    const auto channels = static_cast<std::size_t>(field.format.channels);
    if (field.format.planar) return {data, channels, height, width, value};
    return {data, 1, height, width, channels * value};
}

View unflipped(View view) {
    view.hflip = view.vflip = false;
    return view;
}

View whole(const SampleWorker::Image& image, SourceSize size) {
    return {.x0 = 0,
            .y0 = 0,
            .x1 = static_cast<double>(image.width),
            .y1 = static_cast<double>(image.height),
            .left = 0,
            .top = 0,
            .right = image.width,
            .bottom = image.height,
            .width = size.width,
            .height = size.height,
            .inner_x = 0,
            .inner_y = 0,
            .inner_width = size.width,
            .inner_height = size.height};
}

}  // namespace

std::uint64_t SampleWorker::entry_of(const Job& job, const CacheUse& cache, int sample) {
    return cache.first + static_cast<std::uint64_t>(job.ids[sample]);
}

std::optional<Store::Item> SampleWorker::find_kept(const Job& job, const ImageField& field, int sample, bool counts) {
    if (field.cache.cut < Cut::shrunk || is_in_memory(field, sample)) return std::nullopt;
    Store& store = *field.cache.store;
    const std::uint64_t entry = entry_of(job, field.cache, sample);
    auto item = counts ? store.find(entry) : store.peek(entry);
    const std::uint32_t most = 1 << 30;
    if (item && (item->width - 1 >= most || item->height - 1 >= most)) item.reset();
    return item;
}

std::span<const std::uint8_t> SampleWorker::read_kept(const Job& job, const CacheUse& cache, int sample) {
    if (cache.cut != Cut::file) return {};
    const std::uint64_t entry = entry_of(job, cache, sample);
    const auto item = cache.store->find(entry);
    if (!item) return {};
    if (item->bytes > limits_.max_file_bytes) {
        cache.store->reject(entry, *item);
        return {};
    }
    const Part part(file_.reserve(std::max<std::size_t>(1, item->bytes)), item->bytes);
    return cache.store->read(entry, *item, {&part, 1}) ? part : Part();
}

SampleWorker::Kept SampleWorker::kept_of(const ImageField& field, int sample) {
    std::uint8_t* const out = field.out + static_cast<std::size_t>(sample) * field.bytes();
    if (is_made_of_kept(field, chain_))
        return {{Part(canvas_.reserve(as_bytes(field.format).bytes()), as_bytes(field.format).bytes())}, 1};
    if (field.valid == nullptr) return {{Part(out, field.bytes())}, 1};
    return {{Part(out, field.bytes()), Part(field.valid + sample * field.pixels(), field.pixels())}, 2};
}

bool SampleWorker::take_kept(const Job& job, const ImageField& field, int sample, const Store::Item& item,
                             const View& view) {
    const std::int64_t since = now_ns();
    const std::uint64_t entry = entry_of(job, field.cache, sample);
    stage_ = Stage::read;
    if (field.cache.cut == Cut::final) {
        const Kept kept = kept_of(field, sample);
        if (!field.cache.store->read(entry, item, std::span(kept.parts).first(kept.count))) return false;
        spent(Stage::read, since, item.bytes);
        finish_kept(field, sample, view);
        return true;
    }
    const auto small = read_shrunk(job, field, sample, item);
    if (!small) return false;
    spent(Stage::read, since, item.bytes);
    stage_ = Stage::decode;
    const Image source{Image::Kind::pixels, static_cast<int>(item.width), static_cast<int>(item.height), {}, {}, 0};
    deliver_shrunk(field, field.format, field.out + static_cast<std::size_t>(sample) * field.bytes(), source, *small,
                   view, chain_);
    return true;
}

std::optional<SampleWorker::Image> SampleWorker::read_shrunk(const Job& job, const ImageField& field, int sample,
                                                             const Store::Item& item) {
    const std::uint64_t entry = entry_of(job, field.cache, sample);
    const Image source{Image::Kind::pixels, static_cast<int>(item.width), static_cast<int>(item.height), {}, {}, 0};
    Image small = shrunk_of(field, source);
    if (small.bytes != item.bytes) {
        field.cache.store->reject(entry, item);
        return std::nullopt;
    }
    shrunk_.resize(small.bytes);
    const Part part(shrunk_);
    if (!field.cache.store->read(entry, item, {&part, 1})) return std::nullopt;
    small.pixels.data = shrunk_.data();
    return small;
}

void SampleWorker::deliver_and_keep(Job& job, const ImageField& field, int sample, const Image& image,
                                    const View& view) {
    const Kept kept = kept_of(field, sample);
    const Format format = is_made_of_kept(field, chain_) ? as_bytes(field.format) : field.format;
    deliver_content(job, field, sample, format, kept.parts[0].data(), image, unflipped(view), {});
    const ConstPart parts[kMostParts] = {kept.parts[0], kept.parts[1]};
    if (job.may_keep(sample)) {
        field.cache.store->put(entry_of(job, field.cache, sample), std::span(parts).first(kept.count),
                               static_cast<std::uint32_t>(image.width), static_cast<std::uint32_t>(image.height));
    }
    finish_kept(field, sample, view);
}

void SampleWorker::finish_kept(const ImageField& field, int sample, const View& view) {
    const std::int64_t since = now_ns();
    const Kept kept = kept_of(field, sample);
    if (view.hflip || view.vflip) {
        mirror(canvas_of(field, kept.parts[0].data()), view.hflip, view.vflip);
        if (kept.count > 1) {
            Canvas valid = canvas_of(field, kept.parts[1].data());
            valid.pixel_bytes = 1;
            mirror(valid, view.hflip, view.vflip);
        }
    }
    std::uint8_t* const out = field.out + static_cast<std::size_t>(sample) * field.bytes();
    if (field.content != Content::picture) {
        warp_dense(field, sample);
    } else if (!chain_.empty()) {
        augmenter_.load(as_bytes(field.format), kept.parts[0].data());
        finish_augmented(field.format, out, chain_);
    } else if (is_made_of_kept(field, chain_)) {
        target_.convert(field.format, kept.parts[0].data(), out);
    }
    counters_[static_cast<int>(Stage::resample)].add(now_ns() - since, 0, 0);
}

// Describes the shrunk copy, without its pixels.
SampleWorker::Image SampleWorker::shrunk_of(const ImageField& field, const Image& image) {
    const SourceSize size = shrunk_size({image.width, image.height}, field.shrink_to);
    const int channels = field.format.channels;
    const std::size_t bytes = static_cast<std::size_t>(size.width) * size.height * channels;
    return {Image::Kind::pixels,
            size.width,
            size.height,
            {nullptr, bytes, size.width, size.height, channels, PixelType::u8},
            {},
            bytes};
}

SampleWorker::Image SampleWorker::shrink(const ImageField& field, const Image& image) {
    Image small = shrunk_of(field, image);
    shrunk_.resize(small.bytes);
    small.pixels.data = shrunk_.data();
    Format format = as_bytes(field.format);
    format.planar = false;
    format.width = small.width;
    format.height = small.height;
    ImageField as_whole;
    as_whole.format = format;
    as_whole.filter = field.filter;
    as_whole.dct_margin = field.dct_margin;
    deliver_picture(as_whole, format, shrunk_.data(), image, whole(image, {small.width, small.height}), {});
    return small;
}

SampleWorker::Image SampleWorker::shrink_and_keep(const Job& job, const ImageField& field, int sample,
                                                  const Image& image) {
    const Image small = shrink(field, image);
    const ConstPart pixels(small.pixels.data, small.bytes);
    if (field.cache.cut == Cut::shrunk && job.may_keep(sample)) {
        field.cache.store->put(entry_of(job, field.cache, sample), {&pixels, 1},
                               static_cast<std::uint32_t>(image.width), static_cast<std::uint32_t>(image.height));
    }
    return small;
}

void SampleWorker::deliver_shrunk(const ImageField& field, const Format& format, std::uint8_t* out, const Image& source,
                                  const Image& small, const View& view, const Chain& chain) {
    const bool same = small.width == source.width && small.height == source.height;
    const View scaled = same ? view : scale_view(view, source.width, source.height, small.width, small.height);
    check_view(scaled, small.width, small.height);
    deliver_picture(field, format, out, small, scaled, chain);
}

}  // namespace headrace
