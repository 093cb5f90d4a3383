// Inflation of a PNG's compressed rows in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/scratch.hpp"
#include "png/chunks.hpp"

struct libdeflate_decompressor;

namespace headrace::png {

// Throws Fault(corrupt) if the image data cannot hold `total` bytes of rows even at the best ratio. Call it before any
// allocation by image size: a small file must not claim a large image's memory.
void check_can_hold(const Chunks& chunks, std::size_t total);

class Inflater {
public:
    // Readable bytes after the rows, so that vector loads need no special case for the last pixel.
    static constexpr std::size_t padding_bytes = 64;

    Inflater();

    // Returns the first `wanted` of the image's `total` row bytes, including filter bytes. Valid until the next call.
    // With wanted == total the stream must have exactly that length and a correct checksum.
    // Throws Fault(corrupt) on a corrupt stream or one of another length.
    const std::uint8_t* inflate(const Chunks& chunks, std::size_t wanted, std::size_t total);

private:
    std::span<const std::uint8_t> joined(const Chunks& chunks);

    struct Free {
        void operator()(libdeflate_decompressor* decompressor) const;
    };
    std::unique_ptr<libdeflate_decompressor, Free> decompressor_;
    Scratch packed_;
    Scratch rows_;
};

}  // namespace headrace::png
