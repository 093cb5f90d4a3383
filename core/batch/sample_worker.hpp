// Everything that happens to one sample, on one thread: read, probe, view, decode, resample, write.
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

// One a thread; keeps decoders and buffers between samples.
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

    // Records what goes wrong as failures of the job; throws nothing but std::bad_alloc.
    void run(Job& job, int sample);

    // Decodes the job's one image of its one sample at the size that its view has: the format's size is set, then
    // `allocate` gives format.bytes() of memory. For callers that wait in their own thread. Throws Fault.
    using Allocate = std::function<std::uint8_t*(const Format&)>;
    void decode_one(Job& job, const Allocate& allocate);

    // One image, probed.
    struct Image {
        enum class Kind { jpeg, png, pixels } kind;
        int width = 0, height = 0;
        Memory pixels;
        PngInfo png;
        std::size_t bytes = 0;
        std::int64_t whole_bytes = 0;  // memory of a decoder that cannot go row by row; 0 for one that can
    };

private:
    // The first image of a sample and the job's view of it, which the other fields follow.
    struct Scene {
        Image image{};
        View view;
    };
    // A copy of a picture that is cut from a decoded image: where it goes, and what its draws are keyed by.
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
    // From the cache, or else from the source, and then kept if the cut says so. Valid until the next call.
    std::span<const std::uint8_t> read_all(Job& job, const Ranges& ranges, const CacheUse& cache, int sample);
    Image probe(Job& job, const ImageField& field, int sample);
    Image open(const Reader::Start& start, const ImageField& field, bool for_pixels);
    View choose_view(const Job& job, int sample, const Image& image) const;
    // Checked against the image and the batch.
    View view_of(const Job& job, int sample, const ImageField& field, int copy, const Image& image,
                 const Scene& scene) const;
    void deliver(Job& job, const ImageField& field, int sample, const Image& image, const View& view);
    void deliver_content(Job& job, const ImageField& field, int sample, const Format& format, std::uint8_t* out,
                         const Image& image, const View& view, const Chain& chain);
    // What comes before the draw, as kept pixels do, has an empty chain.
    void deliver_picture(const ImageField& field, const Format& format, std::uint8_t* out, const Image& image,
                         const View& view, const Chain& chain);
    // Takes the rows of a picture: the batch's memory, or the canvas on which the chain is run.
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
    // Runs the chain on the values of a mask, depth or normals, which are in the batch.
    void warp_dense(const ImageField& field, int sample);
    void warp_values(const ImageField& field, std::size_t bytes, const std::uint8_t* outside, std::uint8_t* values);
    void turn_normals(const ImageField& field, std::uint8_t* normals);
    void deliver_wide(const ImageField& field, std::uint8_t* out, const Image& image, const View& view);
    // Draws the chain of one image of this size: the sample's operations, then the field's. Empty where it has none.
    void draw(const Job& job, const ImageField& field, int sample, std::uint64_t key);
    // The canvas of the augmenter, with the chain run on it, as the batch has it.
    void finish_augmented(const Format& format, std::uint8_t* out, const Chain& chain);
    // --- what is kept (deliver_cached.cpp) ---
    // The parts of an entry: where the sample lies in the batch, or `canvas_` for pictures that become floats.
    struct Kept {
        Part parts[kMostParts];
        std::size_t count;
    };
    static std::uint64_t entry_of(const Job& job, const CacheUse& cache, int sample);
    // Of pixels; bytes of files are looked up where they are read.
    static std::optional<Store::Item> find_kept(const Job& job, const ImageField& field, int sample, bool counts);
    Kept kept_of(const ImageField& field, int sample);
    // False where what was found is damaged.
    bool take_kept(const Job& job, const ImageField& field, int sample, const Store::Item& item, const View& view);
    void deliver_and_keep(Job& job, const ImageField& field, int sample, const Image& image, const View& view);
    void finish_kept(const ImageField& field, int sample, const View& view);
    std::span<const std::uint8_t> read_kept(const Job& job, const CacheUse& cache, int sample);
    static Image shrunk_of(const ImageField& field, const Image& image);
    Image shrink(const ImageField& field, const Image& image);
    // What was kept of it; nothing where that is damaged. And a new one, which is then kept, if the cut says so.
    std::optional<Image> read_shrunk(const Job& job, const ImageField& field, int sample, const Store::Item& item);
    Image shrink_and_keep(const Job& job, const ImageField& field, int sample, const Image& image);
    void deliver_shrunk(const ImageField& field, const Format& format, std::uint8_t* out, const Image& source,
                        const Image& small, const View& view, const Chain& chain);

    void send_picture(const ImageField& field, const Format& format, const Image& image, const Window& window,
                      int eighths, PixelRows& out);
    // The rows from top to bottom, each of `type`; counted as decoding, less what the sink takes.
    void send_samples(const Image& image, PixelType type, const Window& window, int top, int bottom, RowSink& sink);
    // Decodes to rows of RGBX bytes.
    void send_rows(const Image& image, const Reach& reach, RowSink& sink);
    RowSink& start_sampler(Filter filter, const Window& window, int first_row, int first_column, int columns,
                           PixelRows& out);
    void send_pixels(const Memory& pixels, const Reach& reach, RowSink& sink);
    // A decoder and the sink that took its rows: nanoseconds, bytes read and bytes made.
    void count_rows(std::int64_t since, std::int64_t sink_ns, std::size_t bytes, std::int64_t made);
    void spent(Stage stage, std::int64_t since, std::size_t bytes) {
        counters_[static_cast<int>(stage)].add(now_ns() - since, 1, static_cast<std::int64_t>(bytes));
    }

    const Limits& limits_;
    MemoryBudget* memory_;  // null: nobody else decodes beside this
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
    Chain chain_;  // drawn for the image that is delivered
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
