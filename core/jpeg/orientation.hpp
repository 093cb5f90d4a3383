#pragma once

#include <cstdint>
#include <span>

namespace headrace {

// The EXIF orientation (1 to 8) in the payload of an APP1 segment, "Exif\0\0" included. 1 where it says nothing valid.
// Source: EXIF 2.32, tag 0x0112 of IFD0.
int exif_orientation(std::span<const std::uint8_t> app1);

// The same in the TIFF structure alone, as PNG's eXIf chunk has it.
int tiff_orientation(std::span<const std::uint8_t> tiff);

// Whether it exchanges width and height.
constexpr bool is_sideways(int orientation) { return orientation >= 5; }

}  // namespace headrace
