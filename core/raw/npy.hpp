// Headers of `.npy` files as NumPy writes them. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dense/pixel_type.hpp"

namespace headrace {

struct NpyInfo {
    std::array<std::int64_t, 3> shape{1, 1, 1};
    int dimensions = 0;  // 2 or 3
    PixelType type = PixelType::u8;
    std::size_t offset = 0;  // of the values in the file
};

// True for a file that begins like an `.npy`.
bool is_npy(std::span<const std::uint8_t> file);

// Reads the header of a file of `file_bytes` bytes from its `start`. Throws Fault: corrupt (the header extends beyond
// `start`), declined (damaged headers, and all but two or three dimensions in C order of little-endian uint8, uint16 or
// float32: left to NumPy).
NpyInfo read_npy(std::span<const std::uint8_t> start, std::size_t file_bytes);

}  // namespace headrace
