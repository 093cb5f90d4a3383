// Decoder of a PNG's filtered rows, in order, to rows of a Layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/scratch.hpp"
#include "png/chunks.hpp"
#include "png/unfilter.hpp"

namespace headrace::png {

class RowDecoder {
public:
    explicit RowDecoder(Level level) : level_(level) {}

    // Selects the conversion from the image's samples to the layout. Throws Fault(unsupported) if there is none.
    void set(const Chunks& chunks, Layout layout);

    // Begins an image, or one pass of an interlaced image, with rows of `width` pixels.
    void begin(int width);

    // Bytes of a pixel in the layout, and the slack that a row's memory needs after its end.
    int pixel_bytes() const { return pixel_bytes_; }
    static constexpr std::size_t slack_bytes = unfilter_slack_bytes;

    // Decodes the next `count` rows, which begin with their filter bytes and are `raw_stride` apart, to rows that are
    // `out_stride` apart. The last output row must not change until the next call. Throws Fault(corrupt).
    void take(const std::uint8_t* raw, std::size_t raw_stride, int count, std::uint8_t* out, std::size_t out_stride);

    // The same, but the rows serve only as predecessors of the next rows.
    void skip(const std::uint8_t* raw, std::size_t raw_stride, int count);

private:
    void set_lookup(const Chunks& chunks, Layout layout);
    void set_samples(const Chunks& chunks);
    void unfilter_samples(const std::uint8_t* raw, std::uint8_t* out);
    void expand_samples(const std::uint8_t* packed, std::uint8_t* out);
    int filter_of(const std::uint8_t* raw, int row) const;
    void unfilter(const std::uint8_t* raw, std::size_t raw_stride, int count, std::uint8_t* out,
                  std::size_t out_stride);
    const std::uint8_t* unfilter_own(const std::uint8_t* raw, std::size_t raw_stride, int count);
    void expand(const std::uint8_t* packed, std::uint8_t* out, int row);
    const std::uint8_t* indices(const std::uint8_t* packed);
    void check_indices(const std::uint8_t* indices, int row) const;

    Level level_;
    Pixels pixels_ = Pixels::bytes;
    const RowFilters* filters_ = nullptr;
    int pixel_bytes_ = 0;

    // Samples smaller than a byte, or mapped by a table: unfiltered first, then expanded.
    bool expands_ = false;
    int bits_ = 8;
    int colors_ = 0;  // number of palette entries for lookup, else 0
    std::array<std::uint32_t, 256> table_{};

    // All channels of Layout::samples: unfiltered in the file's format, `step_` bytes per pixel (1 for packed samples).
    bool samples_ = false;
    int step_ = 1;
    int pixel_bits_ = 8;  // in the file

    int width_ = 0;
    int row_ = 0;
    std::size_t units_ = 0;  // pixels, or bytes of packed samples
    const std::uint8_t* above_ = nullptr;

    // Buffers for rows that the caller does not store; one of them may be the row above.
    static constexpr int own_rows = 2;
    std::uint8_t* own_ = nullptr;
    std::size_t own_stride_ = 0;
    Scratch own_memory_;
    Scratch index_memory_;
};

}  // namespace headrace::png
