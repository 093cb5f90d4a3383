// How decoders hand pixels on: bands of whole rows, top to bottom, hot in cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// Pixel layouts that a decoder can be asked for. rgbx8 repeats grey in the three channels; its fourth byte is
// unspecified. raw8 and raw16 are the file's own single-channel samples (palette indices, grey, depth). samples are all
// of the file's own channels, of a byte each, or of 16 bits where the file has them; palettes are looked up.
enum class Layout : std::uint8_t { rgbx8, raw8, raw16, samples };

// Bytes that a receiver of rows may read past the end of the last one: kernels load whole vectors.
inline constexpr std::size_t kReadableBeyond = 64;

// Receives bands of rows. They are valid only during the call, and readable kReadableBeyond bytes past the end
// of the last one.
class RowSink {
public:
    virtual ~RowSink() = default;
    virtual void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) = 0;
};

}  // namespace headrace
