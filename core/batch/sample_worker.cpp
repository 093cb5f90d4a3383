#include "batch/sample_worker.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "batch/timed_sink.hpp"
#include "batch/windows.hpp"
#include "jpeg/orientation.hpp"
#include "rng/hash.hpp"

namespace headrace {

namespace {

// Nearly every header is in the first 8 KB; a header with a preview and a colour profile is in the first 128 KB.
constexpr std::size_t kHeaderBytes = 8 << 10, kHeaderGrowth = 16;

SampleWorker::Image image_of(const Store::Item& item) {
    return {SampleWorker::Image::Kind::pixels, static_cast<int>(item.width), static_cast<int>(item.height), {}, {}, 0};
}

// Returns a decoder's memory if it is worth a lock; images of ordinary size need none.
std::int64_t costly(std::int64_t bytes) { return bytes < (std::int64_t{32} << 20) ? 0 : bytes; }

View draw_view(const Job& job, int sample, std::span<const ViewOp> program, std::uint64_t key,
               const SampleWorker::Image& image, int copy) {
    try {
        return sample_view(program, key, static_cast<std::uint64_t>(job.draw_ids[sample]), job.passes[sample],
                           job.dataset, image.width, image.height, copy);
    } catch (const Fault& fault) {  // the program was checked before, so this image does not fit
        throw Fault(Code::unfit, fault.what());
    }
}

bool is_of_pixels(const ImageField& field, int sample) {
    return !field.memory.empty() && field.memory[sample].channels != 0;
}

}  // namespace

void SampleWorker::run(Job& job, int sample) {
    Scene scene;
    int field = 0;
    const int images = static_cast<int>(job.images.size());
    const int fields = job.probe_only ? std::min(1, images) : images + static_cast<int>(job.raws.size());
    try {
        for (; field < fields && !job.cancelled(); ++field) {
            stage_ = Stage::read;
            if (job.probe_only) {
                note_size(job, sample, measure(job, job.images.front(), sample));
            } else if (field < images) {
                run_image(job, sample, field, scene);
            } else {
                run_raw(job, sample, job.raws[field - images]);
            }
        }
        if (field < fields) job.fail({sample, field, Code::cancelled, stage_, "cancelled"});
    } catch (const Fault& fault) {
        job.fail({sample, field, fault.code, stage_, fault.what()});
    }
}

void SampleWorker::note_size(Job& job, int sample, const Image& image) {
    job.sizes[2 * sample] = image.width;
    job.sizes[2 * sample + 1] = image.height;
}

void SampleWorker::decode_one(Job& job, const Allocate& allocate) {
    ImageField& field = job.images.front();
    const Image image = probe(job, field, 0);
    const View view = choose_view(job, 0, image);
    check_view(view, image.width, image.height);
    field.format.width = view.width;
    field.format.height = view.height;
    field.out = allocate(field.format);
    deliver(job, field, 0, image, view);
}

void SampleWorker::run_raw(Job& job, int sample, RawField& raw) {
    const auto bytes = read_all(job, raw.ranges, raw.cache, sample);
    raw.out[sample].assign(bytes.begin(), bytes.end());
}

void SampleWorker::run_image(Job& job, int sample, int index, Scene& scene) {
    const ImageField& field = job.images[index];
    if (field.decoded_with >= 0 && field.decoded_with != index) return;  // delivered with that field
    const std::optional<Store::Item> kept = find_kept(job, field, sample, true);
    Image image = kept ? image_of(*kept) : probe(job, field, sample);
    if (index == 0) {
        note_size(job, sample, image);
        scene.image = image;
        if (!field.own_view) {
            scene.view = choose_view(job, sample, image);
            write_view(scene.view, job.views.data() + static_cast<std::size_t>(sample) * kViewRow);
        }
    }
    // Pictures that share a decode are cropped from the whole image as RGBX.
    const std::int64_t shared = field.decoded_with == index ? std::int64_t{4} * image.width * image.height : 0;
    const MemoryShare share(memory_, costly(image.whole_bytes + shared));
    if (field.decoded_with == index) return deliver_copies(job, sample, index, image, scene, kept);
    const View view = view_of(job, sample, field, 0, image, scene);
    draw(job, field, sample, job.key_of(field, 0));
    if (kept) {
        if (take_kept(job, field, sample, *kept, view)) return;
        image = probe(job, field, sample);
    }
    deliver(job, field, sample, image, view);
}

// Reads only the image's header.
SampleWorker::Image SampleWorker::measure(Job& job, const ImageField& field, int sample) {
    if (is_of_pixels(field, sample)) return probe(job, field, sample);
    if (const auto kept = find_kept(job, field, sample, false)) return image_of(*kept);
    for (std::size_t most = kHeaderBytes;; most *= kHeaderGrowth) {
        stage_ = Stage::read;
        const Reader::Start start = fetch(job, field, sample, most);
        try {
            return open(start, field, false);
        } catch (const Fault& fault) {
            const bool may_go_on = fault.code == Code::corrupt || fault.code == Code::unsupported;
            if (start.is_all() || !may_go_on) throw;
        }
    }
}

Reader::Start SampleWorker::fetch(Job& job, const ImageField& field, int sample, std::size_t most) {
    if (!field.memory.empty() && field.memory[sample].data != nullptr) {
        return {{field.memory[sample].data, field.memory[sample].size}, field.memory[sample].size};
    }
    if (most == std::numeric_limits<std::size_t>::max()) {
        const auto bytes = read_all(job, field.ranges, field.cache, sample);
        return {bytes, bytes.size()};
    }
    const std::int64_t since = now_ns();
    const Reader::Start start = reader_.read_start(field.ranges, sample, most, limits_.max_file_bytes, job);
    spent(Stage::read, since, start.bytes.size());
    return start;
}

std::span<const std::uint8_t> SampleWorker::read_all(Job& job, const Ranges& ranges, const CacheUse& cache,
                                                     int sample) {
    const std::int64_t since = now_ns();
    std::span<const std::uint8_t> bytes = read_kept(job, cache, sample);
    if (bytes.data() == nullptr) {
        bytes = reader_.read(ranges, sample, limits_.max_file_bytes, job);
        if (cache.cut == Cut::file && job.may_keep(sample)) cache.store->put(entry_of(job, cache, sample), {&bytes, 1});
    }
    spent(Stage::read, since, bytes.size());
    return bytes;
}

SampleWorker::Image SampleWorker::probe(Job& job, const ImageField& field, int sample) {
    if (is_of_pixels(field, sample)) {
        const Memory& pixels = field.memory[sample];
        return {Image::Kind::pixels, pixels.width, pixels.height, pixels, {}, pixels.size};
    }
    return open(fetch(job, field, sample, std::numeric_limits<std::size_t>::max()), field, true);
}

SampleWorker::Image SampleWorker::open(const Reader::Start& start, const ImageField& field, bool for_pixels) {
    const std::span<const std::uint8_t> bytes = start.bytes;
    const std::int64_t since = now_ns();
    stage_ = Stage::probe;
    Image image{};
    image.bytes = bytes.size();
    if (bytes.empty()) throw Fault(Code::corrupt, "expected an image, got 0 bytes");
    if (is_jpeg(bytes)) {
        const JpegInfo& info =
            for_pixels ? jpeg_.open(bytes, limits_, field.orient) : jpeg_.probe(bytes, start.of, limits_, field.orient);
        if (info.orientation != 1 && for_pixels) throw Fault(Code::declined, "turned by EXIF");
        image.kind = Image::Kind::jpeg;
        image.width = info.width;
        image.height = info.height;
        // Coefficients of all scans, as 16-bit numbers.
        if (info.progressive) image.whole_bytes = std::int64_t{2} * (info.grey ? 1 : 3) * info.width * info.height;
        if (is_sideways(info.orientation)) std::swap(image.width, image.height);
    } else if (is_png(bytes)) {
        const PngInfo info = for_pixels ? png_.open(bytes, limits_) : png_probe(bytes, limits_, field.orient);
        const int orientation = field.orient ? info.orientation : 1;
        if (orientation != 1 && for_pixels) throw Fault(Code::declined, "turned by EXIF");
        image.kind = Image::Kind::png;
        image.width = info.width;
        image.height = info.height;
        if (is_sideways(orientation)) std::swap(image.width, image.height);
        image.png = info;
        if (info.interlaced) image.whole_bytes = std::int64_t{8} * info.width * info.height;
    } else {
        throw Fault(Code::declined, "neither JPEG nor PNG");
    }
    expect_memory(image.whole_bytes, limits_.max_decode_bytes);
    spent(Stage::probe, since, bytes.size());
    return image;
}

View SampleWorker::view_of(const Job& job, int sample, const ImageField& field, int copy, const Image& image,
                           const Scene& scene) const {
    View view = scene.view;
    const Image& first = scene.image;
    if (field.own_view) {
        view = draw_view(job, sample, field.program, job.key_of(field, copy), image, copy);
    } else if (image.width != first.width || image.height != first.height) {
        view = scale_view(view, first.width, first.height, image.width, image.height);
    }
    check_view(view, image.width, image.height);
    if (view.width != field.format.width || view.height != field.format.height) {
        throw Fault(Code::view, "the view makes " + size_text(view.width, view.height) + " of an image of " +
                                    size_text(image.width, image.height) + ", but the batch holds " +
                                    size_text(field.format.width, field.format.height));
    }
    return view;
}

View SampleWorker::choose_view(const Job& job, int sample, const Image& image) const {
    if (job.given_views != nullptr) return read_view(job.given_views + static_cast<std::size_t>(sample) * kViewRow);
    return draw_view(job, sample, job.program, job.key, image, 0);
}

void SampleWorker::deliver(Job& job, const ImageField& field, int sample, const Image& image, const View& view) {
    stage_ = Stage::decode;
    if (field.cache.cut == Cut::final) return deliver_and_keep(job, field, sample, image, view);
    std::uint8_t* out = field.out + static_cast<std::size_t>(sample) * field.bytes();
    deliver_content(job, field, sample, field.format, out, image, view, chain_);
    warp_dense(field, sample);
}

void SampleWorker::deliver_content(Job& job, const ImageField& field, int sample, const Format& format,
                                   std::uint8_t* out, const Image& image, const View& view, const Chain& chain) {
    switch (field.content) {
        case Content::picture: {
            if (image.kind == Image::Kind::png && image.png.bit_depth == 16)
                job.narrowed.fetch_add(1, std::memory_order_relaxed);
            if (field.shrink_to == 0) return deliver_picture(field, format, out, image, view, chain);
            return deliver_shrunk(field, format, out, image, shrink_and_keep(job, field, sample, image), view, chain);
        }
        case Content::mask:
            return deliver_mask(field, out, image, view);
        case Content::depth:
            return deliver_depth(field, sample, image, view);
        case Content::normals:
            return deliver_vectors(field, out, image, view);
        case Content::wide:
            return deliver_wide(field, out, image, view);
    }
}

void SampleWorker::deliver_picture(const ImageField& field, const Format& format, std::uint8_t* out, const Image& image,
                                   const View& view, const Chain& chain) {
    PixelRows& rows = start_picture(format, out, view, chain);
    if (!lands_nowhere(view)) {
        const bool may_scale = image.kind == Image::Kind::jpeg && is_antialiased(field.filter);
        const int eighths = may_scale ? dct_scale(view, field.dct_margin) : 8;
        send_picture(field, format, image, scaled_window(view, image.width, image.height, eighths), eighths, rows);
    }
    if (!chain.empty()) finish_augmented(format, out, chain);
}

PixelRows& SampleWorker::start_picture(const Format& format, std::uint8_t* out, const View& view, const Chain& chain) {
    if (!chain.empty()) {
        augmenter_.start(Placement::of(view), format.fill);
        return augmenter_;
    }
    target_.start(format, out, Placement::of(view));
    return target_;
}

void SampleWorker::draw(const Job& job, const ImageField& field, int sample, std::uint64_t key) {
    chain_.clear();
    if (field.content == Content::wide) return;
    const bool is_picture = field.content == Content::picture;
    const auto id = static_cast<std::uint64_t>(job.draw_ids[sample]);
    const auto append = [&](const AugmentProgram& program, std::uint64_t under) {
        const Stream stream{under, id, job.passes[sample], job.dataset, 0};
        const Chain drawn = draw_chain(program, stream, field.format.width, field.format.height);
        for (const DrawnOp& op : drawn)
            if (is_picture || is_geometric(op.kind)) chain_.push_back(op);
    };
    // A field that does not follow the sample's view does not follow its augmentation draws either.
    if (job.augment) append(*job.augment, field.own_view ? hash64(key, 1) : job.key);
    if (field.augment) append(*field.augment, key);
}

void SampleWorker::finish_augmented(const Format& format, std::uint8_t* out, const Chain& chain) {
    const std::int64_t since = now_ns();
    stage_ = Stage::augment;
    augmenter_.run(chain, format.channels == 1);
    target_.store(format, augmenter_.canvas(), out);
    for (const DrawnOp& op : chain)
        if (op.kind == kErase) augmenter_.erase(format, op, out);
    spent(Stage::augment, since, format.bytes());
}

void SampleWorker::send_picture(const ImageField& field, const Format& format, const Image& image, const Window& window,
                                int eighths, PixelRows& out) {
    const Reach reach = reach_of(window, field.filter);
    const std::int64_t since = now_ns();
    const bool to_grey = format.channels == 1;  // grey images pass unchanged
    JpegDecoder::Columns columns{0, image.width};
    if (image.kind == Image::Kind::jpeg) columns = jpeg_.begin(eighths, reach.left, reach.right);
    RowSink& sampler = start_sampler(field.filter, window, reach.top, columns.first, columns.count, out);
    if (to_grey) grey_.start(sampler, columns.count);
    TimedSink sink(to_grey ? static_cast<RowSink&>(grey_) : sampler);
    send_rows(image, reach, sink);
    count_rows(since, sink.spent_ns(), image.bytes, std::int64_t{4} * window.width * window.height);
}

RowSink& SampleWorker::start_sampler(Filter filter, const Window& window, int first_row, int first_column, int columns,
                                     PixelRows& out) {
    if (filter == Filter::nearest) {
        nearest_.start(window, 4, first_row, first_column, out);
        return nearest_;
    }
    resampler_.start(window, filter, first_row, first_column, columns, out);
    return resampler_;
}

void SampleWorker::send_rows(const Image& image, const Reach& reach, RowSink& sink) {
    if (image.kind == Image::Kind::jpeg) {
        jpeg_.decode(reach.top, reach.bottom, sink);
    } else if (image.kind == Image::Kind::png) {
        png_.decode(reach.top, reach.bottom, Layout::rgbx8, sink);
    } else {
        send_pixels(image.pixels, reach, sink);
    }
}

void SampleWorker::count_rows(std::int64_t since, std::int64_t sink_ns, std::size_t bytes, std::int64_t made) {
    const std::int64_t total = now_ns() - since;
    counters_[static_cast<int>(Stage::decode)].add(total - sink_ns, 1, static_cast<std::int64_t>(bytes));
    counters_[static_cast<int>(Stage::resample)].add(sink_ns, 1, made);
}

void SampleWorker::send_pixels(const Memory& pixels, const Reach& reach, RowSink& sink) {
    if (pixels.type != PixelType::u8) throw Fault(Code::unsupported, "expected a picture of 8-bit values");
    const std::size_t stride = 4 * static_cast<std::size_t>(pixels.width);
    line_.resize(stride + kReadableBeyond);
    for (int y = reach.top; y < reach.bottom; ++y) {
        const std::uint8_t* row = pixels.data + static_cast<std::size_t>(y) * pixels.width * pixels.channels;
        for (int x = 0; x < pixels.width; ++x) {
            for (int channel = 0; channel < 3; ++channel) {
                line_[4 * x + channel] = row[x * pixels.channels + (pixels.channels == 3 ? channel : 0)];
            }
        }
        sink.take(line_.data(), stride, 1);
    }
}

}  // namespace headrace
