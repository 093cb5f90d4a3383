#include "batch/sample_worker.hpp"

#include <algorithm>

#include "augment/draw.hpp"
#include "rng/hash.hpp"

namespace headrace {

namespace {

// Returns a decoder's memory if it is worth a lock; images of ordinary size need none.
std::int64_t costly(std::int64_t bytes) { return bytes < (std::int64_t{32} << 20) ? 0 : bytes; }

void count_losses(const FieldItem& item, const Image& image) {
    Job& job = item.job;
    if (image.kind == Image::Kind::png && image.png.transparent)
        job.transparent.store(item.sample, std::memory_order_relaxed);
    if ((image.kind == Image::Kind::png && image.png.bit_depth == 16) || image.big_endian)
        job.narrowed.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void SampleWorker::run(Job& job, int sample) {
    Scene scene(job, sample);
    dense_.begin_sample();
    int field = 0;
    const int images = static_cast<int>(job.images.size());
    const int fields = job.probe_only ? std::min(1, images) : images + static_cast<int>(job.raws.size());
    try {
        for (; field < fields && !job.cancelled(); ++field) {
            clock_.enter(Stage::read);
            if (job.probe_only) {
                record_size(job, sample, reader_.measure({job, job.images.front(), sample}));
            } else if (field < images) {
                run_image(job, sample, field, scene);
            } else {
                run_raw(job, sample, job.raws[field - images]);
            }
        }
        if (field < fields) job.fail({sample, field, Code::cancelled, clock_.stage(), "cancelled"});
    } catch (const Fault& fault) {
        job.fail({sample, field, fault.code, clock_.stage(), fault.what()});
    }
}

void SampleWorker::decode_one(Job& job, const Allocate& allocate) {
    ImageField& field = job.images.front();
    dense_.begin_sample();
    const FieldItem item{job, field, 0};
    const Image image = reader_.probe(item);
    const View view = choose_view(job, 0, image);
    check_view(view, image.width, image.height);
    field.format.width = view.width;
    field.format.height = view.height;
    field.out = allocate(field.format);
    deliver(item, image, view);
}

void SampleWorker::run_raw(Job& job, int sample, RawField& raw) {
    const auto bytes = reader_.read(job, raw.ranges, raw.cache, sample);
    raw.out[sample].assign(bytes.begin(), bytes.end());
}

void SampleWorker::run_image(Job& job, int sample, int index, Scene& scene) {
    const FieldItem item{job, job.images[index], sample};
    const int with = item.field.decoded_with();
    if (with >= 0 && with != index) return;  // delivered with that field
    const std::optional<Store::Item> cached = find_cached(item, true);
    Image image = cached ? image_of(*cached) : reader_.probe(item);
    if (index == 0) scene.begin(item.field, image);
    if (with == index) {
        // Pictures that share a decode are cropped from the whole image as RGBX.
        const std::int64_t shared = std::int64_t{4} * image.width * image.height + image.turning_bytes(8);
        const MemoryShare share(memory_, costly(image.whole_bytes + shared));
        return run_copies(item, index, image, scene, cached);
    }
    const View view = scene.view_of(item.field, 0, image);
    const auto* picture = item.field.as<PictureOptions>();
    const bool scales = picture != nullptr && picture->shrink_to == 0;
    const Image viewed = as_viewed(image, view);
    const MemoryShare share(
        memory_, costly(image.whole_bytes + viewed.turning_bytes(scales ? scale_of(*picture, viewed, view) : 8)));
    draw(item, job.key_of(item.field, 0));
    if (cached) {
        if (deliver_cached(item, *cached, view)) return;
        image = reader_.probe(item);
    }
    deliver(item, image, view);
}

void SampleWorker::draw(const FieldItem& item, std::uint64_t key) {
    const auto& [job, field, sample] = item;
    chain_.clear();
    if (field.as<WideOptions>()) return;
    const auto* picture = field.as<PictureOptions>();
    const auto id = static_cast<std::uint64_t>(job.draw_ids[sample]);
    const auto append = [&](const AugmentProgram& program, std::uint64_t under) {
        const Stream stream{under, id, job.passes[sample], job.dataset, 0};
        for (const DrawnOp& op : draw_chain(program, stream, field.format.width, field.format.height))
            if (picture || is_geometric(op.kind)) chain_.push_back(op);
    };
    // A field that does not follow the sample's view does not follow its augmentation draws either.
    if (job.augment) append(*job.augment, field.own_view ? hash64(key, 1) : job.key);
    if (picture && picture->augment) append(*picture->augment, key);
}

void SampleWorker::run_copies(const FieldItem& first, int index, Image image, const Scene& scene,
                              const std::optional<Store::Item>& cached) {
    auto& [job, field, sample] = first;
    std::optional<Image> small;
    if (cached) small = shrinker_.read(first, *cached);
    if (cached && !small) image = reader_.probe(first);
    clock_.enter(Stage::decode);
    count_losses(first, image);
    if (!small && field.as<PictureOptions>()->shrink_to > 0) small = shrinker_.make(first, image);
    const Image& source = small ? *small : image;
    shared_.clear();
    for (auto other = job.images.begin() + index; other != job.images.end(); ++other) {
        if (other->decoded_with() != index) continue;
        std::uint8_t* out = FieldItem{job, *other, sample}.out();
        for (int copy = 0; copy < other->copies(); ++copy, out += other->bytes()) {
            const View view = Shrinker::scaled(scene.view_of(*other, copy, image), image, source);
            shared_.push_back({&*other, out, view, job.key_of(*other, copy)});
        }
    }
    copies_.decode(source, shared_, field.format.channels == 1);
    for (const CopiesWriter::Picture& picture : shared_) {
        clock_.enter(Stage::resample);
        draw({job, *picture.field, sample}, picture.key);
        copies_.write(picture, chain_);
    }
}

void SampleWorker::deliver(const FieldItem& item, const Image& image, const View& view) {
    clock_.enter(Stage::decode);
    if (item.field.cache.cut == Cut::final) {
        const FinalPixels pixels(item, chain_, canvas_);
        View upright = view;
        upright.hflip = upright.vflip = 0;
        write(item, pixels.format(), pixels.data(), image, upright, {});
        pixels.put(image);
        return finish_cached(item, pixels, view);
    }
    write(item, item.field.format, item.out(), image, view, chain_);
    if (!item.field.as<PictureOptions>()) warper_.warp(item, chain_);
}

bool SampleWorker::deliver_cached(const FieldItem& item, const Store::Item& cached, const View& view) {
    if (item.field.cache.cut == Cut::final) {
        const std::int64_t since = now_ns();
        clock_.enter(Stage::read);
        const FinalPixels pixels(item, chain_, canvas_);
        if (!pixels.read(cached)) return false;
        clock_.spent(Stage::read, since, cached.bytes);
        finish_cached(item, pixels, view);
        return true;
    }
    const auto small = shrinker_.read(item, cached);
    if (!small) return false;
    clock_.enter(Stage::decode);
    pictures_.write(*item.field.as<PictureOptions>(), item.field.format, item.out(), as_viewed(*small, view),
                    Shrinker::scaled(view, image_of(cached), *small), chain_);
    return true;
}

void SampleWorker::finish_cached(const FieldItem& item, const FinalPixels& pixels, const View& view) {
    const std::int64_t since = now_ns();
    pixels.flip(view);
    if (item.field.as<PictureOptions>()) {
        pictures_.write_bytes(item.field.format, pixels.data(), item.out(), chain_);
    } else {
        warper_.warp(item, chain_);
    }
    clock_.spent(Stage::resample, since, 0, 0);
}

void SampleWorker::write(const FieldItem& item, const Format& format, std::uint8_t* out, const Image& image,
                         const View& view, const Chain& chain) {
    const auto* options = item.field.as<PictureOptions>();
    if (options == nullptr) return dense_.write(item, as_viewed(image, view), view);
    count_losses(item, image);
    if (options->shrink_to == 0) return pictures_.write(*options, format, out, as_viewed(image, view), view, chain);
    const Image small = shrinker_.make(item, image);
    pictures_.write(*options, format, out, as_viewed(small, view), Shrinker::scaled(view, image, small), chain);
}

}  // namespace headrace
