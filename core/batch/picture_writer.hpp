// Writing of pictures into the batch: resampling of a window, augmentation, and conversion to the batch's format.
#pragma once

#include <cstring>

#include "augment/augmenter.hpp"
#include "batch/image_reader.hpp"
#include "resample/nearest.hpp"

namespace headrace {

// Returns the DCT scale, in eighths, at which a picture's view is decoded.
int scale_of(const PictureOptions&, const Image&, const View&);

// Passes on each RGBX pixel's luma in all three channels: ITU-R 601, rounded like Pillow's convert("L").
class GreySink final : public RowSink {
public:
    // `sink` receives rows of `width` pixels until the next start().
    void start(RowSink& sink, int width);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;

private:
    RowSink* sink_ = nullptr;
    std::size_t width_ = 0;
    std::vector<std::uint8_t> band_;
};

// One per thread. Chains are empty for pixels before augmentation, such as cached ones.
class PictureWriter {
public:
    PictureWriter(Level level, ImageReader& reader, StageClock& clock)
        : reader_(reader), clock_(clock), resampler_(kernels(level)), target_(kernels(level)), augmenter_(level) {}

    // Writes the view of an open image, row by row as they leave the decoder.
    // The image is `as_viewed`.
    void write(const PictureOptions& options, const Format& format, std::uint8_t* out, const Image& image,
               const View& view, const Chain& chain);
    // Writes a finished picture of bytes, such as a cached one, with its augmentation.
    void write_bytes(const Format& format, const std::uint8_t* bytes, std::uint8_t* out, const Chain& chain);

    // --- for rows from elsewhere: start(), start_sampler(), the rows, finish() ---
    // Returns the sink for a picture's rows: the batch's memory, or the canvas on which the chain runs.
    PixelRows& start(const Format& format, std::uint8_t* out, const View& view, const Chain& chain);
    RowSink& start_sampler(Filter filter, const Window& window, int first_row, int first_column, int columns,
                           PixelRows& out);
    // Runs the chain, unless empty, and writes the result in the batch's format.
    void finish(const Format& format, std::uint8_t* out, const Chain& chain);

private:
    void send(Filter filter, bool to_grey, const Image& image, const Window& window, int eighths, PixelRows& out);

    ImageReader& reader_;
    StageClock& clock_;
    Resampler resampler_;
    NearestSampler nearest_;
    Target target_;
    Augmenter augmenter_;
    GreySink grey_;
};

// Part of a decoded image as RGBX bytes: `rows` rows from `first_row` on, `columns` pixels from `first_column` on.
class RowCollector final : public RowSink {
public:
    void start(int first_row, int rows, int first_column, int columns) {
        first_row_ = first_row;
        first_column_ = first_column;
        columns_ = columns;
        memory_ = scratch_.reserve(stride() * rows + kReadableBeyond);
        next_ = memory_;
    }
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override {
        for (int row = 0; row < count; ++row, next_ += stride()) {
            std::memcpy(next_, rows + row * stride_bytes, stride());
        }
    }

    int first_column() const { return first_column_; }
    int columns() const { return columns_; }
    std::size_t stride() const { return std::size_t{4} * columns_; }
    // Readable kReadableBeyond bytes past the end of the last row.
    const std::uint8_t* row(int y) const { return memory_ + stride() * (y - first_row_); }

private:
    Scratch scratch_;
    std::uint8_t* memory_ = nullptr;
    std::uint8_t* next_ = nullptr;
    int first_row_ = 0, first_column_ = 0, columns_ = 0;
};

// Pictures of one decoded image: fields of one column, each with its own view and copies. One per thread.
class CopiesWriter {
public:
    struct Picture {
        const ImageField* field;
        std::uint8_t* out;
        View view;
        std::uint64_t key;  // of its draws
    };

    CopiesWriter(PictureWriter& pictures, ImageReader& reader, StageClock& clock)
        : writer_(pictures), reader_(reader), clock_(clock) {}

    // Decodes the part of an open image that the pictures need, at the finest scale of all, so that none has less
    // detail than alone.
    void decode(const Image& image, std::span<const Picture> pictures, bool to_grey);
    // Writes a picture from the decoded rows.
    void write(const Picture& picture, const Chain& chain);

private:
    Window window_of(const Picture& picture) const;
    // Returns the decoded pixels that the window needs, before rows and columns are swapped.
    Reach decoded_reach(const Picture& picture, const Window& window) const;

    PictureWriter& writer_;
    ImageReader& reader_;
    StageClock& clock_;
    Image image_;
    int eighths_ = 8;
    RowCollector decoded_;
    GreySink grey_;
    TurnedRows turned_;
};

}  // namespace headrace
