#include "batch/sample_worker.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "jpeg/orientation.hpp"

namespace headrace {

namespace {

// Hands rows on and measures how long the receiver takes, so that decoding and resampling, which alternate band by
// band, are counted apart.
class TimedSink final : public RowSink {
public:
    explicit TimedSink(RowSink& sink) : sink_(sink) {}
    void take(const std::uint8_t* rows, std::size_t stride, int count) override {
        const std::int64_t since = now_ns();
        sink_.take(rows, stride, count);
        spent_ += now_ns() - since;
    }
    std::int64_t spent_ns() const { return spent_; }

private:
    RowSink& sink_;
    std::int64_t spent_ = 0;
};

// Nearly every header lies in the first; in the second lies one with a preview and a colour profile.
constexpr std::size_t kHeaderBytes = 8 << 10, kHeaderGrowth = 16;

std::string size_text(int width, int height) { return std::to_string(width) + "x" + std::to_string(height); }

bool is_of_pixels(const ImageField& field, int sample) {
    return !field.memory.empty() && field.memory[sample].channels != 0;
}

void check_view(const View& v, int width, int height) {
    const bool finite = std::isfinite(v.x0) && std::isfinite(v.y0) && std::isfinite(v.x1) && std::isfinite(v.y1);
    const bool empty = v.inner_width == 0 || v.inner_height == 0;  // a crop that fell wholly into its padding
    if (!finite || !(v.x0 < v.x1 || empty) || !(v.y0 < v.y1 || empty)) {
        throw Fault(Code::view, "expected a window of positive, finite size, got [" + std::to_string(v.x0) + ", " +
                                    std::to_string(v.x1) + ") x [" + std::to_string(v.y0) + ", " +
                                    std::to_string(v.y1) + ")");
    }
    // A pixel of tolerance: windows are computed in floating point.
    if (v.x0 < -1 || v.y0 < -1 || v.x1 > width + 1.0 || v.y1 > height + 1.0) {
        throw Fault(Code::view, "the window leaves the image of " + size_text(width, height));
    }
    if (v.left < 0 || v.top < 0 || v.right > width || v.bottom > height || v.left >= v.right || v.top >= v.bottom) {
        throw Fault(Code::view, "the window's bounds leave the image of " + size_text(width, height));
    }
    if (v.inner_x < 0 || v.inner_y < 0 || v.inner_width < 0 || v.inner_height < 0 ||
        v.inner_width > v.width - v.inner_x || v.inner_height > v.height - v.inner_y) {
        throw Fault(Code::view, "the window lands outside its canvas of " + size_text(v.width, v.height));
    }
}

// The smallest DCT scale at which the window is still no smaller than its output, in eighths.
int dct_scale(const View& view) {
    for (int eighths = 1; eighths < 8; eighths *= 2) {
        if ((view.x1 - view.x0) * eighths / 8 >= view.inner_width &&
            (view.y1 - view.y0) * eighths / 8 >= view.inner_height) {
            return eighths;
        }
    }
    return 8;
}

// The view's window in the image scaled by exactly eighths/8; its ceiled size would let image and mask drift apart.
Window scaled_window(const View& v, int width, int height, int eighths) {
    const double by = eighths / 8.0;
    const int scaled_width = JpegDecoder::scaled(width, eighths), scaled_height = JpegDecoder::scaled(height, eighths);
    return {v.x0 * by,
            v.y0 * by,
            v.x1 * by,
            v.y1 * by,
            v.left * eighths / 8,
            v.top * eighths / 8,
            std::min(scaled_width, JpegDecoder::scaled(v.right, eighths)),
            std::min(scaled_height, JpegDecoder::scaled(v.bottom, eighths)),
            v.inner_width,
            v.inner_height,
            v.hflip};
}

}  // namespace

void SampleWorker::run(Job& job, int sample) {
    View base;
    Image first{};
    int field = 0;
    const int images = static_cast<int>(job.images.size());
    const int fields = job.probe_only ? std::min(1, images) : images + static_cast<int>(job.raws.size());
    try {
        for (; field < fields && !job.cancelled(); ++field) {
            stage_ = Stage::read;
            if (job.probe_only) {
                note_size(job, sample, measure(job, job.images.front(), sample));
            } else if (field < images) {
                run_image(job, sample, field, base, first);
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
    deliver(field, 0, image, view);
}

void SampleWorker::run_raw(Job& job, int sample, RawField& raw) {
    const std::int64_t since = now_ns();
    const auto bytes = reader_.read(raw.ranges, sample, limits_.max_file_bytes, job);
    raw.out[sample].assign(bytes.begin(), bytes.end());
    spent(Stage::read, since, bytes.size());
}

void SampleWorker::run_image(Job& job, int sample, int index, View& base, Image& first) {
    const ImageField& field = job.images[index];
    const Image image = probe(job, field, sample);
    if (index == 0) {
        note_size(job, sample, image);
        first = image;
        base = choose_view(job, sample, image);
        write_view(base, job.views.data() + static_cast<std::size_t>(sample) * kViewRow);
    }
    const bool same = image.width == first.width && image.height == first.height;
    const View view = same ? base : scale_view(base, first.width, first.height, image.width, image.height);
    check_view(view, image.width, image.height);
    if (view.width != field.format.width || view.height != field.format.height) {
        throw Fault(Code::view, "the view makes " + size_text(view.width, view.height) + " of an image of " +
                                    size_text(image.width, image.height) + ", but the batch holds " +
                                    size_text(field.format.width, field.format.height));
    }
    deliver(field, sample, image, view);
}

// Reads no more of the image than its header takes.
SampleWorker::Image SampleWorker::measure(Job& job, const ImageField& field, int sample) {
    if (is_of_pixels(field, sample)) return probe(job, field, sample);
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
    const std::int64_t since = now_ns();
    const Reader::Start start = reader_.read_start(field.ranges, sample, most, limits_.max_file_bytes, job);
    spent(Stage::read, since, start.bytes.size());
    return start;
}

SampleWorker::Image SampleWorker::probe(Job& job, const ImageField& field, int sample) {
    if (is_of_pixels(field, sample)) {
        const Memory& pixels = field.memory[sample];
        return {Image::Kind::pixels, pixels.width, pixels.height, pixels, pixels.size};
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
        if (is_sideways(info.orientation)) std::swap(image.width, image.height);
    } else if (is_png(bytes)) {
        const PngInfo info = for_pixels ? png_.open(bytes, limits_) : png_probe(bytes, limits_);
        image.kind = Image::Kind::png;
        image.width = info.width;
        image.height = info.height;
    } else {
        throw Fault(Code::declined, "neither JPEG nor PNG");
    }
    spent(Stage::probe, since, bytes.size());
    return image;
}

View SampleWorker::choose_view(const Job& job, int sample, const Image& image) const {
    if (job.given_views != nullptr) return read_view(job.given_views + static_cast<std::size_t>(sample) * kViewRow);
    try {
        return sample_view(job.program, job.key, static_cast<std::uint64_t>(job.ids[sample]), job.passes[sample],
                           job.dataset, image.width, image.height);
    } catch (const Fault& fault) {  // the program was checked before: what does not fit is this image
        throw Fault(Code::unfit, fault.what());
    }
}

void SampleWorker::deliver(const ImageField& field, int sample, const Image& image, const View& view) {
    std::uint8_t* out = field.out + static_cast<std::size_t>(sample) * field.format.bytes();
    const int inner_x = view.hflip ? view.width - view.inner_x - view.inner_width : view.inner_x;
    target_.start(field.format, out, inner_x, view.inner_y, view.inner_width, view.inner_height, view.vflip);
    if (view.inner_width == 0 || view.inner_height == 0) return;  // all padding
    const bool may_scale = image.kind == Image::Kind::jpeg && field.dct_scaling && field.filter == Filter::triangle;
    const int eighths = may_scale ? dct_scale(view) : 8;
    stage_ = Stage::decode;
    send_rows(field, image, scaled_window(view, image.width, image.height, eighths), eighths);
}

void SampleWorker::send_rows(const ImageField& field, const Image& image, const Window& window, int eighths) {
    const Reach reach = reach_of(window, field.filter);
    const std::int64_t since = now_ns();
    const bool to_grey = field.format.channels == 1;  // a grey image passes unchanged
    TimedSink sink(to_grey ? static_cast<RowSink&>(grey_) : resampler_);
    JpegDecoder::Columns columns{0, image.width};
    if (image.kind == Image::Kind::jpeg) columns = jpeg_.begin(eighths, reach.left, reach.right);
    if (to_grey) grey_.start(resampler_, columns.count);
    resampler_.start(window, field.filter, reach.top, columns.first, columns.count, target_);
    if (image.kind == Image::Kind::jpeg) {
        jpeg_.decode(reach.top, reach.bottom, sink);
    } else if (image.kind == Image::Kind::png) {
        png_.decode(reach.top, reach.bottom, Layout::rgbx8, sink);
    } else {
        send_pixels(image.pixels, reach, sink);
    }
    const std::int64_t total = now_ns() - since;
    counters_[static_cast<int>(Stage::decode)].add(total - sink.spent_ns(), 1, static_cast<std::int64_t>(image.bytes));
    counters_[static_cast<int>(Stage::resample)].add(sink.spent_ns(), 1,
                                                     std::int64_t{4} * window.width * window.height);
}

void SampleWorker::send_pixels(const Memory& pixels, const Reach& reach, RowSink& sink) {
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
