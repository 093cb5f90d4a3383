// One batch of work: what to read, how to cut it, where to put it, and what came of each sample.
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

// Bytes or pixels that the caller already holds, instead of a range. Borrowed until the job is done.
struct Memory {
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;                     // bytes
    int width = 0, height = 0, channels = 0;  // channels 0: encoded bytes; else pixels, HWC, 1 or 3 unless wide
    PixelType type = PixelType::u8;           // of pixels
};

// What the pixels of a field are.
enum class Content : std::uint8_t { picture, mask, depth, normals, wide };

inline constexpr int kMostCopies = 64;

// One image of each sample, or several pictures of one.
struct ImageField {
    Ranges ranges;
    std::vector<Memory> memory;  // empty, or one a sample; one without data is read from its range
    Content content = Content::picture;
    Format format;                  // its size; all of it for pictures and normals
    MaskFormat mask;                // of a mask
    DepthFormat depth;              // of a depth map
    WideFormat wide;                // of a wide picture
    std::uint8_t* out = nullptr;    // samples times sample_bytes()
    std::uint8_t* valid = nullptr;  // of a depth map, or null: samples times pixels()
    Filter filter = Filter::triangle;
    double dct_margin = 0;  // see dct_scale
    bool y_up = false;      // of normals: y grows upwards
    bool orient = false;    // honour EXIF: a turned image is declined
    int shrink_to = 0;      // above 0: pixels of a picture are taken from a copy with a short side of at most that
    CacheUse cache;
    std::uint64_t name_hash = 0;                    // what draws of its own are keyed by
    std::shared_ptr<const AugmentProgram> augment;  // of a picture, after the job's, or null
    // Of a picture. With a view of its own it does not follow the job's, and each copy draws another.
    bool own_view = false;
    std::vector<ViewOp> program;  // of its own view
    int copies = 1;               // one after the other in `out`
    // The field, this one or one before it, with which it is decoded: both are pictures of one column. -1: alone, row
    // by row as they leave the decoder; it has one copy then.
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
    std::int32_t field;  // images first, then raw fields, in the order in which they were added
    Code code;
    Stage stage;
    std::string why;
};

// A view as a row of numbers: x0, y0, x1, y1, left, top, right, bottom, width, height, inner_x, inner_y, inner_width,
// inner_height, hflip, vflip.
inline constexpr int kViewRow = 16;
void write_view(const View& view, double* row);
View read_view(const double* row);  // throws Fault view for numbers that are not whole where they have to be

// Described by one thread, then run by an engine's threads, then read by the first again after wait().
class Job {
public:
    // --- the description, fixed before submission ---
    int samples = 0;
    const std::int64_t* ids = nullptr;       // base sample ids: what caches are keyed by
    const std::int64_t* draw_ids = nullptr;  // what random draws are keyed by (rng/stream.hpp)
    const std::uint32_t* passes = nullptr;
    const std::uint8_t* keeps = nullptr;  // 0 for a sample that caches are not to keep; null: they keep all
    std::uint64_t key = 0;
    std::uint16_t dataset = 0;
    std::vector<ViewOp> program;
    std::shared_ptr<const AugmentProgram> augment;  // of the sample: one draw for all fields, or null
    const double* given_views = nullptr;            // kViewRow doubles a sample, instead of drawing from the program
    bool probe_only = false;                        // only the size of the first image field, turned as its EXIF says
    // The view is drawn from the size of the first. Those with views of their own come after those that follow it.
    std::vector<ImageField> images;
    std::vector<RawField> raws;

    // --- the outcome, to be read after wait() ---
    std::vector<double> views;        // kViewRow a sample
    std::vector<std::int32_t> sizes;  // width, height of the first image field, 2 a sample
    std::vector<Failure> failures;    // in no order
    std::atomic<int> narrowed{0};     // pictures of 16 bits a channel of which the high byte was taken

    bool may_keep(int sample) const { return keeps == nullptr || keeps[sample] != 0; }
    // Sizes the outcome and makes the job ready to run.
    void prepare();
    // Blocks until every sample is done or cancelled.
    void wait();
    bool done() const;
    // Samples not yet begun are skipped; those in progress end normally, those in a pause at once.
    void cancel();
    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

    // What a picture's own draws are keyed by: its view, where it has one, and its augmentation.
    std::uint64_t key_of(const ImageField& field, int copy) const {
        return hash64(hash64(key, field.name_hash), static_cast<std::uint64_t>(copy));
    }

    // --- for the engine ---
    // The next sample to work on, or `samples` when none is left.
    int take() { return std::min(next_.fetch_add(1, std::memory_order_relaxed), samples); }
    // Whether none is left.
    bool all_taken() const { return next_.load(std::memory_order_relaxed) >= samples; }
    void fail(Failure failure);
    void finish_one();
    // Waits. Returns false, at once, when the job is cancelled.
    bool pause(std::chrono::nanoseconds);

private:
    std::atomic<int> next_{0};
    std::atomic<int> left_{0};
    std::atomic<bool> cancelled_{false};
    mutable std::mutex mutex_;
    std::condition_variable all_done_, cancelled_now_;
};

}  // namespace headrace
