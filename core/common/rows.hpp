// Interface through which decoders pass pixels: bands of whole rows, top to bottom, hot in cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// Pixel layouts that a decoder can produce. rgbx8 repeats grey in the three channels; its fourth byte is unspecified.
// raw8 and raw16 are the file's own single-channel samples (palette indices, grey, depth). samples has all of the
// file's channels, one byte each, or 16 bits if the file has 16; palettes are expanded.
enum class Layout : std::uint8_t { rgbx8, raw8, raw16, samples };

// Bytes that a receiver may read past the end of the last row: kernels load whole vectors.
inline constexpr std::size_t kReadableBeyond = 64;

// Receiver of bands of rows. Rows are valid only during the call, and readable kReadableBeyond bytes past the end of
// the last row.
class RowSink {
public:
    virtual ~RowSink() = default;
    virtual void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) = 0;
};

}  // namespace headrace
