// Processing of one sample on one thread: read, probe, view, decode, resample, write.
#pragma once

#include <functional>

#include "batch/cached_pixels.hpp"
#include "batch/dense_writer.hpp"
#include "batch/views.hpp"
#include "common/memory_budget.hpp"

namespace headrace {

// One per thread; reuses decoders and buffers between samples.
class SampleWorker {
public:
    SampleWorker(Level level, const Limits& limits, Counters& counters, Retries& retries,
                 MemoryBudget* memory = nullptr)
        : memory_(memory),
          clock_(counters),
          reader_(level, limits, retries, clock_),
          pictures_(level, reader_, clock_),
          copies_(pictures_, reader_, clock_),
          shrinker_(pictures_, clock_),
          dense_(level, pictures_, reader_, clock_),
          warper_(level, clock_) {}
    SampleWorker(const SampleWorker&) = delete;
    SampleWorker& operator=(const SampleWorker&) = delete;

    // Records errors as failures of the job; throws only std::bad_alloc.
    void run(Job& job, int sample);

    // Decodes the job's single image of its single sample at its view's size: sets the format's size, then calls
    // `allocate` for format.bytes() of memory. For callers that wait in their own thread. Throws Fault.
    using Allocate = std::function<std::uint8_t*(const Format&)>;
    void decode_one(Job& job, const Allocate& allocate);

private:
    void run_image(Job& job, int sample, int index, Scene& scene);
    void run_raw(Job& job, int sample, RawField& raw);
    // Draws the chain of one image of the field's size: the sample's operations, then the field's; empty if none.
    void draw(const FieldItem& item, std::uint64_t key);
    // Delivers all pictures of the column that shares its decode with the field.
    void run_copies(const FieldItem& first, int index, Image image, const Scene& scene,
                    const std::optional<Store::Item>& cached);
    void deliver(const FieldItem& item, const Image& image, const View& view);
    // Delivers cached pixels; returns false if they are corrupt.
    bool deliver_cached(const FieldItem& item, const Store::Item& cached, const View& view);
    // Flips, augments and converts cached pixels.
    void finish_cached(const FieldItem& item, const FinalPixels& pixels, const View& view);
    void write(const FieldItem& item, const Format& format, std::uint8_t* out, const Image& image, const View& view,
               const Chain& chain);

    MemoryBudget* memory_;  // null: no other thread decodes
    StageClock clock_;
    ImageReader reader_;
    PictureWriter pictures_;
    CopiesWriter copies_;
    Shrinker shrinker_;
    DenseWriter dense_;
    DenseWarper warper_;
    Chain chain_;  // drawn for the current image
    Scratch canvas_;
    std::vector<CopiesWriter::Picture> shared_;  // pictures that share the current decode
};

}  // namespace headrace
