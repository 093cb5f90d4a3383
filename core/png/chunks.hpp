// The chunk structure of a PNG: what is in it, in which order, and whether it arrived whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/limits.hpp"
#include "png/png.hpp"

namespace headrace {

struct PngChunks {
    PngInfo info;
    std::span<const std::uint8_t> palette;            // RGB triples; empty without PLTE
    std::vector<std::span<const std::uint8_t>> data;  // the IDATs, in order
    std::size_t data_bytes = 0;
};

// Samples a pixel: 1 for grey and palette, up to 4.
int png_channels(const PngInfo& info);

// Bytes of one packed row of `width` pixels, without its filter byte.
std::size_t png_row_bytes(const PngInfo& info, int width);

// Reads the chunks from signature to IEND into `chunks`, which views the file. Ancillary chunks are passed over.
// Throws Fault: corrupt, limit, or unsupported.
void read_png_chunks(std::span<const std::uint8_t> file, const Limits& limits, PngChunks& chunks);

}  // namespace headrace
