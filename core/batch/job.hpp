// One batch of work: its sources, views and destinations, and the outcome of each sample.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "augment/program.hpp"
#include "batch/counters.hpp"
#include "batch/source.hpp"
#include "cache/store.hpp"
#include "common/fault.hpp"
#include "dense/depth_format.hpp"
#include "dense/mask_target.hpp"
#include "dense/pixel_type.hpp"
#include "dense/wide_sampler.hpp"
#include "resample/target.hpp"
#include "rng/hash.hpp"
#include "view/sample.hpp"

namespace headrace {

// Bytes or pixels in the caller's memory, instead of a range. Borrowed until the job is done.
struct Memory {
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;                     // bytes
    int width = 0, height = 0, channels = 0;  // channels 0: encoded bytes; else pixels, HWC, 1 or 3 unless wide
    PixelType type = PixelType::u8;           // of pixels
};

// Processing stage at which a sample is cached: not at all; the bytes read; decoded and shrunk; or as in the batch,
// before flips and conversion to floats.
enum class Cut : std::uint8_t { none, file, shrunk, final };

// Location of a field's entries: the sample with base id i has entry first + i.
struct CacheUse {
    std::shared_ptr<Store> store;
    std::uint64_t first = 0;
    Cut cut = Cut::none;
};

inline constexpr int kMostCopies = 64;

// --- options by content ---

struct PictureOptions {
    Filter filter = Filter::triangle;
    double dct_margin = 0;  // see dct_scale
    int shrink_to = 0;      // above 0: sampled from a copy with a short side of at most this
    std::shared_ptr<const AugmentProgram> augment = {};  // after the job's, or null
    int copies = 1;  // consecutive in `out`; each draws separately from its own view
    // Index of the field, this one or an earlier one, that shares its decode: both are pictures of one column. -1: no
    // sharing; rows are processed as they leave the decoder, and there is one copy.
    int decoded_with = -1;
};
using MaskOptions = MaskFormat;
struct DepthOptions {
    DepthFormat format;
    std::uint8_t* valid = nullptr;  // samples times pixels(), or null
};
struct NormalsOptions {
    bool y_up = false;
};
struct WideOptions {
    WideFormat format{};
    Filter filter = Filter::triangle;
};
using Content = std::variant<PictureOptions, MaskOptions, DepthOptions, NormalsOptions, WideOptions>;

// One image per sample, or several pictures of one image.
struct ImageField {
    Ranges ranges;
    std::vector<Memory> memory;  // empty, or one per sample; an item without data is read from its range
    Content content;
    Format format;                     // the size for all contents; the rest not for masks and depth
    std::uint8_t* out = nullptr;       // samples times sample_bytes()
    Filter nearest = Filter::nearest;  // of masks, depth and normals
    bool orient = false;               // turn by EXIF
    bool composite = false;            // over a background: a transparent image is declined
    CacheUse cache;
    std::uint64_t name_hash = 0;  // key of the field's own draws
    // View of pictures that do not follow the job's; each copy draws separately.
    std::optional<std::vector<ViewOp>> own_view;
    int scale = 1;  // the output is this many times the job's view, each way

    template <typename Options>
    const Options* as() const {
        return std::get_if<Options>(&content);
    }
    int copies() const { return as<PictureOptions>() ? as<PictureOptions>()->copies : 1; }
    int decoded_with() const { return as<PictureOptions>() ? as<PictureOptions>()->decoded_with : -1; }
    std::size_t pixels() const { return static_cast<std::size_t>(format.width) * format.height; }
    std::size_t bytes() const {
        if (const auto* mask = as<MaskOptions>()) return pixels() * mask->bytes;
        const auto* depth = as<DepthOptions>();
        return depth ? pixels() * size_of(depth->format.dtype) : format.bytes();
    }
    std::size_t sample_bytes() const { return bytes() * copies(); }
};

// Undecoded bytes of each sample.
struct RawField {
    Ranges ranges;
    CacheUse cache;
    std::vector<std::vector<std::uint8_t>> out;
};

struct Failure {
    std::int32_t sample;
    std::int32_t field;  // images first, then raw fields, in order of addition
    Code code;
    Stage stage;
    std::string why;
};

// Columns of a view as a row of numbers.
inline constexpr const char* kViewColumns[] = {"X0",          "Y0",           "X1",    "Y1",     "LEFT",      "TOP",
                                               "RIGHT",       "BOTTOM",       "WIDTH", "HEIGHT", "INNER_X",   "INNER_Y",
                                               "INNER_WIDTH", "INNER_HEIGHT", "HFLIP", "VFLIP",  "TRANSPOSED"};
inline constexpr int kViewRow = std::size(kViewColumns);
void write_view(const View& view, double* row);
View read_view(const double* row);  // throws Fault(view) for fractions in integer fields

// Batch job: described by one thread, run by an engine's threads, then read by the first thread after wait().
class Job {
public:
    // --- the description, fixed before submission ---
    int samples = 0;
    const std::int64_t* ids = nullptr;       // base sample ids: keys of caches
    const std::int64_t* draw_ids = nullptr;  // keys of random draws (rng/stream.hpp)
    const std::uint32_t* passes = nullptr;
    const std::uint8_t* keeps = nullptr;  // 0 for samples that must not be cached; null: all may be
    std::uint64_t key = 0;
    std::uint16_t dataset = 0;
    std::vector<ViewOp> program;
    std::shared_ptr<const AugmentProgram> augment;  // of the sample: one draw for all fields, or null
    const double* given_views = nullptr;            // kViewRow doubles per sample, instead of draws from the program
    bool probe_only = false;                        // only the size of the first image field, after EXIF rotation
    // The view is drawn from the size of the first field. Fields with their own views come after those that follow it.
    std::vector<ImageField> images;
    std::vector<RawField> raws;

    // --- the outcome, valid after wait() ---
    std::vector<double> views;         // kViewRow per sample
    std::vector<std::int32_t> sizes;   // width, height of the first image field, per sample
    std::vector<Failure> failures;     // in no order
    std::atomic<int> narrowed{0};      // pictures with 16-bit channels reduced to the high byte
    std::atomic<int> transparent{-1};  // a sample whose picture has lost an alpha channel or tRNS

    bool may_keep(int sample) const { return keeps == nullptr || keeps[sample] != 0; }
    // Sizes the outcome and makes the job ready to run.
    void prepare();
    // Blocks until every sample is done or cancelled.
    void wait();
    bool done() const;
    // Samples not yet begun are skipped; samples in progress end normally, or immediately if in a pause.
    void cancel();
    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

    std::uint64_t entry_of(const CacheUse& cache, int sample) const {
        return cache.first + static_cast<std::uint64_t>(ids[sample]);
    }
    // Key of a picture's own draws: of its own view, if any, and its augmentation.
    std::uint64_t key_of(const ImageField& field, int copy) const {
        return hash64(hash64(key, field.name_hash), static_cast<std::uint64_t>(copy));
    }

    // --- for the engine ---
    // Takes the next sample; returns `samples` when none is left.
    int take() { return std::min(next_.fetch_add(1, std::memory_order_relaxed), samples); }
    // True if no sample is left.
    bool all_taken() const { return next_.load(std::memory_order_relaxed) >= samples; }
    void fail(Failure failure);
    void finish_one();
    // Sleeps. Returns false, immediately, when the job is cancelled.
    bool pause(std::chrono::nanoseconds);

private:
    std::atomic<int> next_{0};
    std::atomic<int> left_{0};
    std::atomic<bool> cancelled_{false};
    mutable std::mutex mutex_;
    std::condition_variable all_done_, cancelled_now_;
};

// One sample of an image field.
struct FieldItem {
    Job& job;
    const ImageField& field;
    int sample;

    // Returns the caller's bytes or pixels; null if the item is read from its range.
    const Memory* memory() const {
        return !field.memory.empty() && field.memory[sample].data != nullptr ? &field.memory[sample] : nullptr;
    }
    bool is_of_pixels() const { return memory() != nullptr && memory()->channels != 0; }
    std::uint8_t* out() const { return field.out + static_cast<std::size_t>(sample) * field.sample_bytes(); }
    // Returns the validity of a depth map's pixels, or null.
    std::uint8_t* valid() const {
        const auto* depth = field.as<DepthOptions>();
        return depth && depth->valid ? depth->valid + static_cast<std::size_t>(sample) * field.pixels() : nullptr;
    }
    std::uint64_t entry() const { return job.entry_of(field.cache, sample); }
};

}  // namespace headrace
