// Headers of binary PGM and PPM files with samples of 8 bits, and PGM with samples of 16 bits.
// https://netpbm.sourceforge.net/doc/ppm.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/limits.hpp"

namespace headrace {

struct PnmInfo {
    int width = 0, height = 0;
    int channels = 1;        // 1 or 3
    int sample_bytes = 1;    // 2: big-endian
    std::size_t offset = 0;  // of the pixels in the file
};

// True for a file that begins like a binary PGM or PPM.
bool is_pnm(std::span<const std::uint8_t> file);

// Reads the header of a file of `file_bytes` bytes from its `start`, and checks that the pixels are all that follows.
// Throws Fault: corrupt (which may mean that the header extends beyond `start`), limit, declined (another maximum than
// 255 or 65535, 16-bit colours, bytes after the pixels, and what is no number: left to Pillow).
PnmInfo read_pnm(std::span<const std::uint8_t> start, std::size_t file_bytes, const Limits& limits);

}  // namespace headrace
