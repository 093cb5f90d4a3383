// One batch of work: its sources, views and destinations, and the outcome of each sample.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "augment/program.hpp"
#include "batch/cached_image.hpp"
#include "batch/source.hpp"
#include "common/fault.hpp"
#include "dense/depth_format.hpp"
#include "dense/mask_target.hpp"
#include "dense/pixel_type.hpp"
#include "dense/wide_sampler.hpp"
#include "resample/target.hpp"
#include "rng/hash.hpp"
#include "view/sample.hpp"

namespace headrace {

enum class Stage : std::uint8_t { read = 0, probe = 1, decode = 2, resample = 3, augment = 4 };

// Bytes or pixels in the caller's memory, instead of a range. Borrowed until the job is done.
struct Memory {
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;                     // bytes
    int width = 0, height = 0, channels = 0;  // channels 0: encoded bytes; else pixels, HWC, 1 or 3 unless wide
    PixelType type = PixelType::u8;           // of pixels
};

// Kind of a field's pixels.
enum class Content : std::uint8_t { picture, mask, depth, normals, wide };

inline constexpr int kMostCopies = 64;

// One image per sample, or several pictures of one image.
struct ImageField {
    Ranges ranges;
    std::vector<Memory> memory;  // empty, or one per sample; an item without data is read from its range
    Content content = Content::picture;
    Format format;                  // the size for all kinds; the rest for pictures and normals
    MaskFormat mask;                // of a mask
    DepthFormat depth;              // of a depth map
    WideFormat wide;                // of a wide picture
    std::uint8_t* out = nullptr;    // samples times sample_bytes()
    std::uint8_t* valid = nullptr;  // of a depth map, or null: samples times pixels()
    Filter filter = Filter::triangle;
    double dct_margin = 0;  // see dct_scale
    bool y_up = false;      // normals: y points up
    bool orient = false;    // respect EXIF: a rotated image is declined
    int shrink_to = 0;      // above 0: a picture is sampled from a copy with a short side of at most this
    CacheUse cache;
    std::uint64_t name_hash = 0;                    // key of the field's own draws
    std::shared_ptr<const AugmentProgram> augment;  // of a picture, after the job's, or null
    // For pictures. With its own view the field does not follow the job's, and each copy draws separately.
    bool own_view = false;
    std::vector<ViewOp> program;  // of its own view
    int copies = 1;               // consecutive in `out`
    // Index of the field, this one or an earlier one, that shares its decode: both are pictures of one column. -1: no
    // sharing; rows are processed as they leave the decoder, and there is one copy.
    int decoded_with = -1;

    std::size_t pixels() const { return static_cast<std::size_t>(format.width) * format.height; }
    std::size_t bytes() const {
        if (content == Content::mask) return pixels() * mask.bytes;
        return content == Content::depth ? pixels() * size_of(depth.dtype) : format.bytes();
    }
    std::size_t sample_bytes() const { return bytes() * copies; }
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
enum class ViewColumn : int {
    x0,
    y0,
    x1,
    y1,
    left,
    top,
    right,
    bottom,
    width,
    height,
    inner_x,
    inner_y,
    inner_width,
    inner_height,
    hflip,
    vflip
};
inline constexpr int kViewRow = 16;
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
    std::vector<double> views;        // kViewRow per sample
    std::vector<std::int32_t> sizes;  // width, height of the first image field, per sample
    std::vector<Failure> failures;    // in no order
    std::atomic<int> narrowed{0};     // pictures with 16-bit channels reduced to the high byte

    bool may_keep(int sample) const { return keeps == nullptr || keeps[sample] != 0; }
    // Sizes the outcome and makes the job ready to run.
    void prepare();
    // Blocks until every sample is done or cancelled.
    void wait();
    bool done() const;
    // Samples not yet begun are skipped; samples in progress end normally, or immediately if in a pause.
    void cancel();
    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

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

}  // namespace headrace
