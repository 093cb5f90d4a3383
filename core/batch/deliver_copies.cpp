// Delivery of several pictures from one decoded image: fields of one column, each with its own view and copies.
#include <algorithm>

#include "batch/sample_worker.hpp"
#include "batch/timed_sink.hpp"
#include "batch/windows.hpp"

namespace headrace {

namespace {

// Returns the scale that the picture needs; the finest of all is used, so that none has less detail than alone.
int scale_of(const ImageField& field, const View& view) {
    return is_antialiased(field.filter) ? dct_scale(view, field.dct_margin) : 8;
}

void widen(Reach& all, const Reach& reach) {
    all.left = std::min(all.left, reach.left);
    all.top = std::min(all.top, reach.top);
    all.right = std::max(all.right, reach.right);
    all.bottom = std::max(all.bottom, reach.bottom);
}

}  // namespace

void SampleWorker::deliver_copies(Job& job, int sample, int index, const Image& image, const Scene& scene,
                                  const std::optional<Store::Item>& kept) {
    const ImageField& first = job.images[index];
    std::optional<Image> small;
    if (kept) {
        const std::int64_t since = now_ns();
        stage_ = Stage::read;
        small = read_shrunk(job, first, sample, *kept);
        if (!small) return deliver_copies(job, sample, index, probe(job, first, sample), scene, std::nullopt);
        spent(Stage::read, since, kept->bytes);
    }
    stage_ = Stage::decode;
    if (image.kind == Image::Kind::png && image.png.bit_depth == 16)
        job.narrowed.fetch_add(1, std::memory_order_relaxed);
    if (first.shrink_to > 0 && !small) small = shrink_and_keep(job, first, sample, image);
    const Image& source = small ? *small : image;
    const bool same = source.width == image.width && source.height == image.height;
    pictures_.clear();
    int eighths = source.kind == Image::Kind::jpeg ? 1 : 8;
    for (std::size_t i = static_cast<std::size_t>(index); i < job.images.size(); ++i) {
        const ImageField& field = job.images[i];
        if (field.decoded_with != index) continue;
        std::uint8_t* out = field.out + static_cast<std::size_t>(sample) * field.sample_bytes();
        for (int copy = 0; copy < field.copies; ++copy, out += field.bytes()) {
            View view = view_of(job, sample, field, copy, image, scene);
            if (!same) view = scale_view(view, image.width, image.height, source.width, source.height);
            check_view(view, source.width, source.height);
            pictures_.push_back({&field, out, view, job.key_of(field, copy)});
            if (!lands_nowhere(view)) eighths = std::max(eighths, scale_of(field, view));
        }
    }
    Reach all{source.width, source.height, 0, 0};
    for (const Picture& picture : pictures_) {
        if (lands_nowhere(picture.view)) continue;
        widen(all, reach_of(scaled_window(picture.view, source.width, source.height, eighths), picture.field->filter));
    }
    if (all.left < all.right) decode_to_memory(source, first.format.channels == 1, eighths, all);
    for (const Picture& picture : pictures_) {
        stage_ = Stage::resample;
        draw(job, *picture.field, sample, picture.key);
        cut_picture(picture, source, eighths);
    }
}

void SampleWorker::decode_to_memory(const Image& image, bool to_grey, int eighths, const Reach& reach) {
    const std::int64_t since = now_ns();
    JpegDecoder::Columns columns{0, image.width};
    if (image.kind == Image::Kind::jpeg) columns = jpeg_.begin(eighths, reach.left, reach.right);
    decoded_.start(reach.top, reach.bottom - reach.top, columns.first, columns.count);
    if (to_grey) grey_.start(decoded_, columns.count);
    send_rows(image, reach, to_grey ? static_cast<RowSink&>(grey_) : decoded_);
    spent(Stage::decode, since, image.bytes);
}

// Like deliver_picture, from decoded rows.
void SampleWorker::cut_picture(const Picture& picture, const Image& image, int eighths) {
    const auto& [field, out, view, key] = picture;
    const std::int64_t since = now_ns();
    PixelRows& rows = start_picture(field->format, out, view, chain_);
    if (!lands_nowhere(view)) resample_decoded(*field, scaled_window(view, image.width, image.height, eighths), rows);
    spent(Stage::resample, since, std::size_t{4} * view.inner_width * view.inner_height);
    if (!chain_.empty()) finish_augmented(field->format, out, chain_);
}

void SampleWorker::resample_decoded(const ImageField& field, const Window& window, PixelRows& out) {
    const Reach reach = reach_of(window, field.filter);
    RowSink& sampler = start_sampler(field.filter, window, reach.top, decoded_.first_column(), decoded_.columns(), out);
    sampler.take(decoded_.row(reach.top), decoded_.stride(), reach.bottom - reach.top);
}

}  // namespace headrace
