// Processing of one sample on one thread: read, probe, view, decode, resample, write.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "augment/augmenter.hpp"
#include "batch/counters.hpp"
#include "batch/grey_sink.hpp"
#include "batch/job.hpp"
#include "batch/reader.hpp"
#include "batch/row_collector.hpp"
#include "common/limits.hpp"
#include "common/memory_budget.hpp"
#include "common/scratch.hpp"
#include "dense/depth_target.hpp"
#include "dense/mask_target.hpp"
#include "dense/quantiles.hpp"
#include "dense/vector_target.hpp"
#include "dense/wide_sampler.hpp"
#include "jpeg/jpeg.hpp"
#include "png/png.hpp"
#include "resample/nearest.hpp"
#include "resample/resampler.hpp"
#include "resample/target.hpp"

namespace headrace {

// One per thread; reuses decoders and buffers between samples.
class SampleWorker {
public:
    SampleWorker(Level level, const Limits& limits, Counters& counters, Retries& retries,
                 MemoryBudget* memory = nullptr)
        : limits_(limits),
          memory_(memory),
          kernels_(&kernels(level)),
          counters_(counters),
          reader_(retries),
          jpeg_(level),
          png_(level),
          resampler_(kernels(level)),
          target_(kernels(level)),
          augmenter_(level),
          warper_(level),
          depth_(kernels(level)),
          vectors_(kernels(level)),
          wide_(kernels(level)) {}

    // Records errors as failures of the job; throws only std::bad_alloc.
    void run(Job& job, int sample);

    // Decodes the job's single image of its single sample at its view's size: sets the format's size, then calls
    // `allocate` for format.bytes() of memory. For callers that wait in their own thread. Throws Fault.
    using Allocate = std::function<std::uint8_t*(const Format&)>;
    void decode_one(Job& job, const Allocate& allocate);

    // Probed image.
    struct Image {
        enum class Kind { jpeg, png, pixels } kind;
        int width = 0, height = 0;
        Memory pixels;
        PngInfo png;
        std::size_t bytes = 0;
        std::int64_t whole_bytes = 0;  // memory of a decoder that cannot stream rows; 0 if it can
    };

private:
    // First image of a sample and the job's view of it, which the other fields follow.
    struct Scene {
        Image image{};
        View view;
    };
    // Copy of a picture to crop from a decoded image: its destination, and the key of its draws.
    struct Picture {
        const ImageField* field;
        std::uint8_t* out;
        View view;
        std::uint64_t key;
    };
    void run_image(Job& job, int sample, int field, Scene& scene);
    void run_raw(Job& job, int sample, RawField& raw);
    static void note_size(Job& job, int sample, const Image& image);
    Image measure(Job& job, const ImageField& field, int sample);
    Reader::Start fetch(Job& job, const ImageField& field, int sample, std::size_t most);
    // Reads from the cache, or else from the source and caches the bytes if the cut is `file`. Valid until the next
    // call.
    std::span<const std::uint8_t> read_all(Job& job, const Ranges& ranges, const CacheUse& cache, int sample);
    Image probe(Job& job, const ImageField& field, int sample);
    Image open(const Reader::Start& start, const ImageField& field, bool for_pixels);
    View choose_view(const Job& job, int sample, const Image& image) const;
    // Returns the view, checked against the image and the batch.
    View view_of(const Job& job, int sample, const ImageField& field, int copy, const Image& image,
                 const Scene& scene) const;
    void deliver(Job& job, const ImageField& field, int sample, const Image& image, const View& view);
    void deliver_content(Job& job, const ImageField& field, int sample, const Format& format, std::uint8_t* out,
                         const Image& image, const View& view, const Chain& chain);
    // The chain is empty for pixels before augmentation, such as cached ones.
    void deliver_picture(const ImageField& field, const Format& format, std::uint8_t* out, const Image& image,
                         const View& view, const Chain& chain);
    // Returns the sink for a picture's rows: the batch's memory, or the canvas on which the chain runs.
    PixelRows& start_picture(const Format& format, std::uint8_t* out, const View& view, const Chain& chain);
    // --- several pictures of one decode (deliver_copies.cpp) ---
    void deliver_copies(Job& job, int sample, int field, const Image& image, const Scene& scene,
                        const std::optional<Store::Item>& kept);
    void decode_to_memory(const Image& image, bool to_grey, int eighths, const Reach& reach);
    void cut_picture(const Picture& picture, const Image& image, int eighths);
    void resample_decoded(const ImageField& field, const Window& window, PixelRows& out);
    void deliver_mask(const ImageField& field, std::uint8_t* out, const Image& image, const View& view);
    void deliver_depth(const ImageField& field, int sample, const Image& image, const View& view);
    void deliver_vectors(const ImageField& field, std::uint8_t* out, const Image& image, const View& view);
    // Runs the chain on a mask, depth or normals in the batch.
    void warp_dense(const ImageField& field, int sample);
    void warp_values(const ImageField& field, std::size_t bytes, const std::uint8_t* outside, std::uint8_t* values);
    void turn_normals(const ImageField& field, std::uint8_t* normals);
    void deliver_wide(const ImageField& field, std::uint8_t* out, const Image& image, const View& view);
    // Draws the chain of one image of this size: the sample's operations, then the field's; empty if it has none.
    void draw(const Job& job, const ImageField& field, int sample, std::uint64_t key);
    // Runs the chain on the augmenter's canvas and writes the result in the batch's format.
    void finish_augmented(const Format& format, std::uint8_t* out, const Chain& chain);
    // --- caching (deliver_cached.cpp) ---
    // Parts of an entry: the sample's memory in the batch, or `canvas_` for pictures that become floats.
    struct Kept {
        Part parts[kMostParts];
        std::size_t count;
    };
    static std::uint64_t entry_of(const Job& job, const CacheUse& cache, int sample);
    // Finds cached pixels; bytes of files are looked up in read_all().
    static std::optional<Store::Item> find_kept(const Job& job, const ImageField& field, int sample, bool counts);
    Kept kept_of(const ImageField& field, int sample);
    // Delivers a cached entry; returns false if it is corrupt.
    bool take_kept(const Job& job, const ImageField& field, int sample, const Store::Item& item, const View& view);
    void deliver_and_keep(Job& job, const ImageField& field, int sample, const Image& image, const View& view);
    void finish_kept(const ImageField& field, int sample, const View& view);
    std::span<const std::uint8_t> read_kept(const Job& job, const CacheUse& cache, int sample);
    static Image shrunk_of(const ImageField& field, const Image& image);
    Image shrink(const ImageField& field, const Image& image);
    // Reads a cached shrunk copy; nothing if it is corrupt. shrink_and_keep() makes a new one and caches it if the cut
    // is `shrunk`.
    std::optional<Image> read_shrunk(const Job& job, const ImageField& field, int sample, const Store::Item& item);
    Image shrink_and_keep(const Job& job, const ImageField& field, int sample, const Image& image);
    void deliver_shrunk(const ImageField& field, const Format& format, std::uint8_t* out, const Image& source,
                        const Image& small, const View& view, const Chain& chain);

    void send_picture(const ImageField& field, const Format& format, const Image& image, const Window& window,
                      int eighths, PixelRows& out);
    // Sends the rows from top to bottom, of `type`; counted as decoding, without the sink's time.
    void send_samples(const Image& image, PixelType type, const Window& window, int top, int bottom, RowSink& sink);
    // Sends decoded rows of RGBX bytes.
    void send_rows(const Image& image, const Reach& reach, RowSink& sink);
    RowSink& start_sampler(Filter filter, const Window& window, int first_row, int first_column, int columns,
                           PixelRows& out);
    void send_pixels(const Memory& pixels, const Reach& reach, RowSink& sink);
    // Counts a decoder and the sink of its rows: nanoseconds, bytes read and bytes produced.
    void count_rows(std::int64_t since, std::int64_t sink_ns, std::size_t bytes, std::int64_t made);
    void spent(Stage stage, std::int64_t since, std::size_t bytes) {
        counters_[static_cast<int>(stage)].add(now_ns() - since, 1, static_cast<std::int64_t>(bytes));
    }

    const Limits& limits_;
    MemoryBudget* memory_;  // null: no other thread decodes
    const Kernels* kernels_;
    Counters& counters_;
    Stage stage_ = Stage::read;
    Reader reader_;
    JpegDecoder jpeg_;
    PngDecoder png_;
    Resampler resampler_;
    NearestSampler nearest_;
    Target target_;
    Augmenter augmenter_;
    Warper warper_;
    Chain chain_;  // drawn for the current image
    MaskTarget mask_;
    DepthTarget depth_;
    DepthCounter depth_counter_;
    VectorTarget vectors_;
    WideSampler wide_;
    GreySink grey_;
    std::vector<std::uint8_t> line_, shrunk_;
    Scratch canvas_, file_, unwarped_;
    std::vector<float> turned_;
    std::vector<Picture> pictures_;
    RowCollector decoded_;
};

}  // namespace headrace
