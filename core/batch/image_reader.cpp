#include "batch/image_reader.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "common/memory_budget.hpp"
#include "jpeg/orientation.hpp"
#include "png/unfilter.hpp"
#include "raw/npy.hpp"
#include "raw/pnm.hpp"
#include "raw/size.hpp"

namespace headrace {

namespace {

// Nearly every header is in the first 8 KB; a header with a preview and a colour profile is in the first 128 KB.
constexpr std::size_t kHeaderBytes = 8 << 10, kHeaderGrowth = 16;
constexpr int kBandRows = 16;

bool may_open(const Limits& limits, const char* format) {
    return std::find(limits.formats.begin(), limits.formats.end(), format) != limits.formats.end();
}

// Describes the pixels in the file's bytes; of a file's start, there may be none.
void open_pnm(const PnmInfo& info, std::span<const std::uint8_t> file, Image& image) {
    image.width = info.width;
    image.height = info.height;
    image.big_endian = info.sample_bytes == 2;
    const auto pixels = file.subspan(info.offset);
    image.pixels = {pixels.data(), pixels.size(), info.width,
                    info.height,   info.channels, image.big_endian ? PixelType::u16 : PixelType::u8};
}

// Describes an array [H, W], [H, W, C] or [C, H, W] as the field reads it. Throws Fault: limit, or declined for arrays
// that Python converts or refuses.
void open_npy(const NpyInfo& info, std::span<const std::uint8_t> file, std::size_t file_bytes, const ImageField& field,
              const Limits& limits, Image& image) {
    const auto [first, second, last] = info.shape;
    const auto is_channels = [](std::int64_t count) { return count == 1 || count == 3; };
    const bool wide = field.as<WideOptions>() != nullptr, picture = field.as<PictureOptions>() != nullptr;
    const std::int64_t expected = wide ? field.format.channels : field.as<NormalsOptions>() ? 3 : 1;
    const bool planes = info.dimensions == 3 && (picture || first == expected) && (wide || is_channels(first)) &&
                        !(wide ? last == expected : is_channels(last));
    const std::int64_t channels = info.dimensions == 2 ? 1 : planes ? first : last;
    image.planar = planes && channels > 1;
    const std::int64_t height = planes ? second : first, width = planes ? last : second;
    const std::uint8_t* const data = file.data() + info.offset;
    const auto sample = static_cast<std::size_t>(size_of(info.type));
    const bool is_type = picture                              ? info.type == PixelType::u8
                         : field.as<MaskOptions>() != nullptr ? info.type != PixelType::f32
                                                              : true;
    if (!(wide ? channels == expected : is_channels(channels)) || !is_type || (image.planar && !picture) || width < 1 ||
        height < 1 || reinterpret_cast<std::uintptr_t>(data) % sample != 0)
        throw Fault(Code::declined, "an array of another kind");
    check_size("NPY", width, height, limits);
    const std::size_t bytes = static_cast<std::size_t>(width * height * channels) * sample;
    if (file_bytes < info.offset + bytes) throw Fault(Code::declined, "an array that is cut short");
    image.width = static_cast<int>(width);
    image.height = static_cast<int>(height);
    image.pixels = {data, bytes, image.width, image.height, static_cast<int>(channels), info.type};
}

}  // namespace

std::optional<Store::Item> find_cached(const FieldItem& item, bool counts) {
    const CacheUse& cache = item.field.cache;
    if (cache.cut < Cut::shrunk || item.memory() != nullptr) return std::nullopt;
    auto found = counts ? cache.store->find(item.entry()) : cache.store->peek(item.entry());
    const std::uint32_t most = 1 << 30;
    if (found && (found->width - 1 >= most || found->height - 1 >= most)) found.reset();
    return found;
}

Image image_of(const Store::Item& cached) {
    return {.width = static_cast<int>(cached.width), .height = static_cast<int>(cached.height)};
}

Image as_viewed(Image image, const View& view) {
    if (view.transposed) {
        std::swap(image.width, image.height);
        image.orientation = kTransposedOrientation[image.orientation];
    }
    return image;
}

std::span<const std::uint8_t> ImageReader::read(Job& job, const Ranges& ranges, const CacheUse& cache, int sample) {
    const std::int64_t since = now_ns();
    std::span<const std::uint8_t> bytes;
    if (ranges.held_part(static_cast<std::size_t>(sample)) == nullptr) {
        bytes = read_cached(job, cache, sample);
    } else if (cache.cut == Cut::file) {
        cache.store->miss();  // bytes in memory need neither a copy nor a check
    }
    if (bytes.data() == nullptr) {
        bytes = reader_.read(ranges, sample, limits_.max_file_bytes, job);
        if (cache.cut == Cut::file && job.may_keep(sample)) cache.store->put(job.entry_of(cache, sample), {&bytes, 1});
    }
    clock_.spent(Stage::read, since, bytes.size());
    return bytes;
}

std::span<const std::uint8_t> ImageReader::read_cached(const Job& job, const CacheUse& cache, int sample) {
    if (cache.cut != Cut::file) return {};
    const std::uint64_t entry = job.entry_of(cache, sample);
    const auto found = cache.store->find(entry);
    if (!found) return {};
    if (found->bytes > limits_.max_file_bytes) {
        cache.store->reject(entry, *found);
        return {};
    }
    const Part part(file_.reserve(std::max<std::size_t>(1, found->bytes)), found->bytes);
    return cache.store->read(entry, *found, {&part, 1}) ? part : Part();
}

Reader::Start ImageReader::fetch(const FieldItem& item, std::size_t most) {
    if (const Memory* memory = item.memory()) return {{memory->data, memory->size}, memory->size};
    if (most == std::numeric_limits<std::size_t>::max()) {
        const auto bytes = read(item.job, item.field.ranges, item.field.cache, item.sample);
        return {bytes, bytes.size()};
    }
    const std::int64_t since = now_ns();
    const Reader::Start start =
        reader_.read_start(item.field.ranges, item.sample, most, limits_.max_file_bytes, item.job);
    clock_.spent(Stage::read, since, start.bytes.size());
    return start;
}

Image ImageReader::probe(const FieldItem& item) {
    if (item.is_of_pixels()) {
        const Memory& pixels = *item.memory();
        return {.width = pixels.width, .height = pixels.height, .pixels = pixels, .bytes = pixels.size};
    }
    return open(fetch(item, std::numeric_limits<std::size_t>::max()), item.field, true);
}

Image ImageReader::measure(const FieldItem& item) {
    if (item.is_of_pixels()) return probe(item);
    if (const auto cached = find_cached(item, false)) return image_of(*cached);
    for (std::size_t most = kHeaderBytes;; most *= kHeaderGrowth) {
        clock_.enter(Stage::read);
        const Reader::Start start = fetch(item, most);
        try {
            return open(start, item.field, false);
        } catch (const Fault& fault) {
            const bool may_go_on = fault.code == Code::corrupt || fault.code == Code::unsupported;
            if (start.is_all() || !may_go_on) throw;
        }
    }
}

Image ImageReader::open(const Reader::Start& start, const ImageField& field, bool for_pixels) {
    const bool orient = field.orient;
    const std::span<const std::uint8_t> bytes = start.bytes;
    const std::int64_t since = now_ns();
    clock_.enter(Stage::probe);
    Image image{.bytes = bytes.size()};
    if (bytes.empty()) throw Fault(Code::corrupt, "expected an image, got 0 bytes");
    if (is_jpeg(bytes)) {
        const JpegInfo& info =
            for_pixels ? jpeg_.open(bytes, limits_, orient) : jpeg_.probe(bytes, start.of, limits_, orient);
        image.kind = Image::Kind::jpeg;
        image.width = info.width;
        image.height = info.height;
        image.orientation = info.orientation;
        // Coefficients of all scans, as 16-bit numbers.
        if (info.progressive) image.whole_bytes = std::int64_t{2} * (info.grey ? 1 : 3) * info.width * info.height;
    } else if (is_png(bytes)) {
        const PngInfo info = for_pixels ? png_.open(bytes, limits_) : png_probe(bytes, limits_, orient);
        image.kind = Image::Kind::png;
        image.width = info.width;
        image.height = info.height;
        image.png = info;
        if (orient) image.orientation = info.orientation;
        if (info.interlaced) image.whole_bytes = std::int64_t{8} * info.width * info.height;
    } else if (is_y4m(bytes)) {
        const Y4mInfo info = for_pixels ? y4m_.open(bytes, limits_) : read_y4m(bytes, start.of, limits_);
        image.kind = Image::Kind::y4m;
        image.width = info.width;
        image.height = info.height;
    } else if (is_pnm(bytes) && may_open(limits_, "PPM")) {
        open_pnm(read_pnm(bytes, start.of, limits_), bytes, image);
    } else if (is_npy(bytes)) {
        open_npy(read_npy(bytes, start.of), bytes, start.of, field, limits_, image);
    } else {
        throw Fault(Code::declined, "neither JPEG nor PNG");
    }
    if (field.composite && image.png.transparent) throw Fault(Code::declined, "transparent");
    if (is_sideways(image.orientation)) std::swap(image.width, image.height);
    expect_memory(image.whole_bytes, limits_.max_decode_bytes);
    clock_.spent(Stage::probe, since, bytes.size());
    return image;
}

JpegDecoder::Columns ImageReader::begin(const Image& image, int eighths, const Reach& reach) {
    const int width = JpegDecoder::scaled(image.width, eighths), height = JpegDecoder::scaled(image.height, eighths);
    shown_ = reach;
    stored_ = stored_reach(reach, width, height, image.orientation);
    columns_ = {stored_.left, stored_.right - stored_.left};
    if (image.kind == Image::Kind::jpeg) columns_ = jpeg_.begin(eighths, stored_.left, stored_.right);
    if (image.kind == Image::Kind::png) columns_ = {0, is_sideways(image.orientation) ? height : width};
    return image.orientation == 1 ? columns_ : JpegDecoder::Columns{reach.left, reach.right - reach.left};
}

void ImageReader::send(const Image& image, Layout layout, RowSink& sink) {
    if (image.orientation == 1) return send_stored(image, layout, sink);
    int pixel_bytes = 4;
    if (image.kind == Image::Kind::png) pixel_bytes = png_.pixel_bytes(layout);
    if (image.kind == Image::Kind::pixels && layout != Layout::rgbx8)
        pixel_bytes = image.pixels.channels * size_of(image.pixels.type);
    const std::int64_t pixels = std::int64_t{shown_.right - shown_.left} * (shown_.bottom - shown_.top);
    expect_memory(image.whole_bytes + pixels * pixel_bytes, limits_.max_decode_bytes);
    turned_.start(shown_, image.orientation, pixel_bytes, stored_.left - columns_.first);
    send_stored(image, layout, turned_);
    turned_.send(sink);
}

void ImageReader::send_stored(const Image& image, Layout layout, RowSink& sink) {
    const int top = stored_.top, bottom = stored_.bottom;
    switch (image.kind) {
        case Image::Kind::jpeg:
            return jpeg_.decode(top, bottom, sink);
        case Image::Kind::png:
            return png_.decode(top, bottom, layout, sink);
        case Image::Kind::y4m:
            return y4m_.decode(columns_.first, top, columns_.first + columns_.count, bottom, sink);
        case Image::Kind::pixels:
            return image.planar ? send_planes(image, top, bottom, sink) : send_pixels(image, layout, top, bottom, sink);
    }
}

void ImageReader::send_pixels(const Image& image, Layout layout, int top, int bottom, RowSink& sink) {
    const Memory& pixels = image.pixels;
    const bool to_rgbx = layout == Layout::rgbx8;
    const bool bytes = pixels.type == PixelType::u8;
    if (to_rgbx && !bytes && !image.big_endian) throw Fault(Code::unsupported, "expected a picture of 8-bit values");
    const std::size_t pixel = static_cast<std::size_t>(pixels.channels) * size_of(pixels.type);
    const std::size_t stride = pixels.width * pixel, count = columns_.count;
    const std::uint8_t* row = pixels.data + top * stride + columns_.first * pixel;
    if (!to_rgbx && !image.big_endian) return sink.take(row, stride, bottom - top);
    // Rows without a PNG's filters.
    const png::Pixels form = !to_rgbx               ? png::Pixels::native16
                             : image.big_endian     ? png::Pixels::grey16
                             : pixels.channels == 1 ? png::Pixels::grey8
                                                    : png::Pixels::rgb8;
    const png::RowFilter convert = png::row_filters(form, level_).row[0];
    const std::size_t made = count * (to_rgbx ? 4 : pixel);
    std::uint8_t* const band = band_.reserve(kBandRows * made + kReadableBeyond);
    const std::uint8_t* const end = pixels.data + pixels.size;
    for (int y = top; y < bottom; y += kBandRows) {
        const int rows = std::min(kBandRows, bottom - y);
        for (int i = 0; i < rows; ++i, row += stride) {
            const std::uint8_t* from = row;
            if (static_cast<std::size_t>(end - row) < count * pixel + png::unfilter_slack_bytes) {
                std::uint8_t* const tail = tail_.reserve(count * pixel + png::unfilter_slack_bytes);
                from = std::copy_n(row, count * pixel, tail) - count * pixel;
            }
            convert(from, band, band + i * made, count);
        }
        sink.take(band, made, rows);
    }
}

void ImageReader::send_planes(const Image& image, int top, int bottom, RowSink& sink) {
    const std::size_t width = image.width, plane = width * image.height, count = columns_.count;
    std::uint8_t* const band = band_.reserve(kBandRows * 4 * count + kReadableBeyond);
    for (int y = top; y < bottom; y += kBandRows) {
        const int rows = std::min(kBandRows, bottom - y);
        std::uint8_t* to = band;
        for (int i = 0; i < rows; ++i, to += 4 * count) {
            const std::uint8_t* const red = image.pixels.data + (y + i) * width + columns_.first;
            const std::uint8_t *const green = red + plane, *const blue = green + plane;
            for (std::size_t x = 0; x < count; ++x) {
                const std::uint32_t pixel = red[x] | std::uint32_t{green[x]} << 8 | std::uint32_t{blue[x]} << 16;
                std::memcpy(to + 4 * x, &pixel, 4);
            }
        }
        sink.take(band, 4 * count, rows);
    }
}

}  // namespace headrace
