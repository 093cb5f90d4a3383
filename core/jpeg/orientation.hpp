#pragma once

#include <cstdint>
#include <span>

namespace headrace {

// The EXIF orientation (1 to 8) in the payload of an APP1 segment, including "Exif\0\0"; 1 if there is no valid one.
// Source: EXIF 2.32, tag 0x0112 of IFD0.
int exif_orientation(std::span<const std::uint8_t> app1);

// The same for a bare TIFF structure, as in PNG's eXIf chunk.
int tiff_orientation(std::span<const std::uint8_t> tiff);

// True if the orientation swaps width and height.
constexpr bool is_sideways(int orientation) { return orientation >= 5; }

}  // namespace headrace
