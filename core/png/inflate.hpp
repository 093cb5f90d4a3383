// The compressed rows of a PNG, unpacked in one go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/scratch.hpp"
#include "png/chunks.hpp"

struct libdeflate_decompressor;

namespace headrace::png {

// Throws Fault(corrupt) where the image data, however well packed, cannot hold `total` bytes of rows. Asked before
// anything is made of the image's size: a small file cannot ask for a large image's memory.
void check_can_hold(const Chunks& chunks, std::size_t total);

class Inflater {
public:
    // Readable bytes after the rows, so that vector loads need no special last pixel.
    static constexpr std::size_t padding_bytes = 64;

    Inflater();

    // The first `wanted` of the image's `total` row bytes, filter bytes included. Valid until the next call.
    // With wanted == total the stream must hold exactly that and its checksum must match.
    // Throws Fault(corrupt) on a damaged stream or one of another length.
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
