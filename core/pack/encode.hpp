// JPEG encoder for packing: the Huffman codes of packed files and, on request, a restart grid for windowed decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace headrace {

struct JpegPixels {
    const std::uint8_t* rows;  // without padding
    int height, width, channels;
};

struct EncodeOptions {
    int quality = 90;
    bool halve_chroma = true;  // 4:2:0 instead of 4:4:4
    bool restart = true;
};

// Encodes 1 (grey) or 3 (RGB) channels, as libjpeg does at that quality. Throws Fault: limit for a side beyond 65,500.
std::vector<std::uint8_t> encode_jpeg(const JpegPixels&, const EncodeOptions&);

}  // namespace headrace
