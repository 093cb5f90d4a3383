// Filtered rows of a PNG, one after another, to rows of a Layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "png/chunks.hpp"
#include "png/scratch.hpp"
#include "png/unfilter.hpp"

namespace headrace {

class RowDecoder {
public:
    explicit RowDecoder(Level level) : level_(level) {}

    // Chooses how the image's samples become the layout. Throws Fault(unsupported) where they cannot.
    void set(const PngChunks& chunks, Layout layout);

    // Begins an image, or one pass of an interlaced image, whose rows have `width` pixels.
    void begin(int width);

    // Bytes of a row in the layout, and what a row's memory must have beyond that.
    int pixel_bytes() const { return pixel_bytes_; }
    static constexpr std::size_t slack_bytes = unfilter_slack_bytes;

    // Undoes the next row, which begins with its filter byte, into `out`, which must stay as it is until the next
    // call; with nullptr the row is only remembered as the one above the next. Throws Fault(corrupt).
    void next(const std::uint8_t* raw, std::uint8_t* out);

private:
    void set_lookup(const PngChunks& chunks, Layout layout);
    void expand(const std::uint8_t* packed, std::uint8_t* out);
    const std::uint8_t* indices(const std::uint8_t* packed);
    void check_indices(const std::uint8_t* indices) const;

    Level level_;
    Pixels pixels_ = Pixels::bytes;
    const RowFilters* filters_ = nullptr;
    int pixel_bytes_ = 0;

    // Samples that are smaller than a byte or that a table translates: unfiltered first, then expanded.
    bool expands_ = false;
    int bits_ = 8;
    int colors_ = 0;  // entries of the palette where indices are looked up, else 0
    std::array<std::uint32_t, 256> table_{};

    int width_ = 0;
    int row_ = 0;
    std::size_t units_ = 0;  // pixels, or bytes of packed samples
    const std::uint8_t* above_ = nullptr;
    std::array<std::uint8_t*, 2> own_{};  // rows that no one else keeps, in turn
    Scratch own_memory_;
    Scratch index_memory_;
};

}  // namespace headrace
