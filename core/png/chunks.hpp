// Chunk structure of a PNG: contents, order and integrity of its chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/limits.hpp"
#include "png/png.hpp"

namespace headrace::png {

struct Chunks {
    PngInfo info;
    std::span<const std::uint8_t> palette;            // RGB triples; empty without PLTE
    std::vector<std::span<const std::uint8_t>> data;  // the IDATs, in order
    std::size_t data_bytes = 0;

    // Retains the vector's memory.
    void clear() {
        info = {};
        palette = {};
        data.clear();
        data_bytes = 0;
    }
};

// Samples per pixel: 1 for grey and palette, up to 4.
int channels(const PngInfo& info);

// Bytes of one packed row of `width` pixels, without its filter byte.
std::size_t packed_row_bytes(const PngInfo& info, int width);

bool has_signature(std::span<const std::uint8_t> file);

// Reads signature and IHDR. Throws Fault: corrupt, or limit.
PngInfo read_header(std::span<const std::uint8_t> file, const Limits& limits);

// Returns the EXIF orientation from the chunks before the pixels; 1 if there is none. Throws Fault(corrupt), also if
// `file` ends before the pixels.
int read_orientation(std::span<const std::uint8_t> file);

// Reads the chunks from signature to IEND into `chunks`, which references the file. Ancillary chunks are skipped.
// Throws Fault: corrupt, limit, or unsupported.
void read_chunks(std::span<const std::uint8_t> file, const Limits& limits, Chunks& chunks);

}  // namespace headrace::png
