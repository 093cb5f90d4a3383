#include "batch/picture_writer.hpp"

#include <algorithm>
#include <bit>

#include "batch/views.hpp"
#include "jpeg/orientation.hpp"

namespace headrace {

namespace {

void widen(Reach& all, const Reach& reach) {
    all.left = std::min(all.left, reach.left);
    all.top = std::min(all.top, reach.top);
    all.right = std::max(all.right, reach.right);
    all.bottom = std::max(all.bottom, reach.bottom);
}

static_assert(std::endian::native == std::endian::little);

// Computes luma with weights of red, green and blue in 1/65536.
std::uint32_t luma(std::uint32_t rgbx) {
    const std::uint32_t red = rgbx & 0xFF, green = rgbx >> 8 & 0xFF, blue = rgbx >> 16 & 0xFF;
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
}

}  // namespace

int scale_of(const PictureOptions& options, const Image& image, const View& view) {
    const bool may_scale = image.kind == Image::Kind::jpeg && is_antialiased(options.filter);
    return may_scale ? dct_scale(view, options.dct_margin) : 8;
}

void GreySink::start(RowSink& sink, int width) {
    sink_ = &sink;
    width_ = static_cast<std::size_t>(width);
}

void GreySink::take(const std::uint8_t* rows, std::size_t stride, int count) {
    const std::size_t bytes = 4 * width_;
    if (band_.size() < bytes * count + kReadableBeyond) band_.resize(bytes * count + kReadableBeyond);
    for (int row = 0; row < count; ++row) {
        const std::uint8_t* from = rows + row * stride;
        std::uint8_t* to = band_.data() + row * bytes;
        for (std::size_t x = 0; x < width_; ++x) {
            std::uint32_t pixel;
            std::memcpy(&pixel, from + 4 * x, 4);
            pixel = luma(pixel) * 0x010101;
            std::memcpy(to + 4 * x, &pixel, 4);
        }
    }
    sink_->take(band_.data(), bytes, count);
}

void PictureWriter::write(const PictureOptions& options, const Format& format, std::uint8_t* out, const Image& image,
                          const View& view, const Chain& chain) {
    PixelRows& rows = start(format, out, view, chain);
    if (!lands_nowhere(view)) {
        const int eighths = scale_of(options, image, view);
        const Window window = scaled_window(view, image, eighths);
        send(options.filter, format.channels == 1, image, window, eighths, rows);
    }
    finish(format, out, chain);
}

void PictureWriter::write_bytes(const Format& format, const std::uint8_t* bytes, std::uint8_t* out,
                                const Chain& chain) {
    if (!chain.empty()) {
        Format of_bytes = format;
        of_bytes.dtype = DType::uint8;
        augmenter_.load(of_bytes, bytes);
        finish(format, out, chain);
    } else if (format.dtype != DType::uint8) {
        target_.convert(format, bytes, out);
    }
}

PixelRows& PictureWriter::start(const Format& format, std::uint8_t* out, const View& view, const Chain& chain) {
    if (!chain.empty()) {
        augmenter_.start(Placement::of(view), format.fill);
        return augmenter_;
    }
    target_.start(format, out, Placement::of(view));
    return target_;
}

void PictureWriter::finish(const Format& format, std::uint8_t* out, const Chain& chain) {
    if (chain.empty()) return;
    const std::int64_t since = now_ns();
    clock_.enter(Stage::augment);
    augmenter_.run(chain, format.channels == 1);
    target_.store(format, augmenter_.canvas(), out);
    for (const DrawnOp& op : chain)
        if (op.kind == kErase) augmenter_.erase(format, op, out);
    clock_.spent(Stage::augment, since, format.bytes());
}

// Grey images pass the conversion to grey unchanged.
void PictureWriter::send(Filter filter, bool to_grey, const Image& image, const Window& window, int eighths,
                         PixelRows& out) {
    const Reach reach = reach_of(window, filter);
    const std::int64_t since = now_ns();
    const JpegDecoder::Columns columns = reader_.begin(image, eighths, reach);
    RowSink& sampler = start_sampler(filter, window, reach.top, columns.first, columns.count, out);
    if (to_grey) grey_.start(sampler, columns.count);
    TimedSink sink(to_grey ? static_cast<RowSink&>(grey_) : sampler);
    reader_.send(image, Layout::rgbx8, sink);
    clock_.spent_on_rows(since, sink.spent_ns(), image.bytes, std::int64_t{4} * window.width * window.height);
}

RowSink& PictureWriter::start_sampler(Filter filter, const Window& window, int first_row, int first_column, int columns,
                                      PixelRows& out) {
    if (is_nearest(filter)) {
        nearest_.start(window, filter, 4, first_row, first_column, out);
        return nearest_;
    }
    resampler_.start(window, filter, first_row, first_column, columns, out);
    return resampler_;
}

Window CopiesWriter::window_of(const Picture& picture) const {
    return scaled_window(picture.view, as_viewed(image_, picture.view), eighths_);
}

Reach CopiesWriter::decoded_reach(const Picture& picture, const Window& window) const {
    const Reach reach = reach_of(window, picture.field->as<PictureOptions>()->filter);
    return picture.view.transposed ? Reach{reach.top, reach.left, reach.bottom, reach.right} : reach;
}

void CopiesWriter::decode(const Image& image, std::span<const Picture> pictures, bool to_grey) {
    image_ = image;
    eighths_ = image.kind == Image::Kind::jpeg ? 1 : 8;
    for (const auto& [field, out, view, key] : pictures)
        if (!lands_nowhere(view)) eighths_ = std::max(eighths_, scale_of(*field->as<PictureOptions>(), image, view));
    Reach all{image.width, image.height, 0, 0};
    for (const Picture& picture : pictures)
        if (!lands_nowhere(picture.view)) widen(all, decoded_reach(picture, window_of(picture)));
    if (all.left >= all.right) return;
    const std::int64_t since = now_ns();
    const JpegDecoder::Columns columns = reader_.begin(image, eighths_, all);
    decoded_.start(all.top, all.bottom - all.top, columns.first, columns.count);
    if (to_grey) grey_.start(decoded_, columns.count);
    RowSink& sink = to_grey ? static_cast<RowSink&>(grey_) : decoded_;
    reader_.send(image, Layout::rgbx8, sink);
    clock_.spent(Stage::decode, since, image.bytes);
}

void CopiesWriter::write(const Picture& picture, const Chain& chain) {
    const auto& [field, out, view, key] = picture;
    const std::int64_t since = now_ns();
    PixelRows& rows = writer_.start(field->format, out, view, chain);
    if (!lands_nowhere(view)) {
        const Filter filter = field->as<PictureOptions>()->filter;
        const Window window = window_of(picture);
        const Reach reach = decoded_reach(picture, window);
        const int count = reach.bottom - reach.top;
        if (view.transposed) {
            RowSink& sampler = writer_.start_sampler(filter, window, reach.left, reach.top, count, rows);
            turned_.start({reach.top, reach.left, reach.bottom, reach.right}, kTransposedOrientation[1], 4,
                          reach.left - decoded_.first_column());
            turned_.take(decoded_.row(reach.top), decoded_.stride(), count);
            turned_.send(sampler);
        } else {
            RowSink& sampler =
                writer_.start_sampler(filter, window, reach.top, decoded_.first_column(), decoded_.columns(), rows);
            sampler.take(decoded_.row(reach.top), decoded_.stride(), count);
        }
    }
    clock_.spent(Stage::resample, since, std::size_t{4} * view.inner_width * view.inner_height);
    writer_.finish(field->format, out, chain);
}

}  // namespace headrace
