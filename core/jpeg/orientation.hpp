#pragma once

#include <cstdint>
#include <span>

namespace headrace {

// The EXIF orientation (1 to 8) of a JPEG, from the markers before its scan; 1 if there is no valid one. Nothing is
// copied, and `file` may be truncated. Source: EXIF 2.32, tag 0x0112 of IFD0 in the first APP1 segment of EXIF.
int jpeg_orientation(std::span<const std::uint8_t> file);

// The same of a bare TIFF structure, as in PNG's eXIf chunk.
int tiff_orientation(std::span<const std::uint8_t> tiff);

// An image is displayed by swapping columns and rows if it is sideways, then mirroring along x or y.
constexpr bool is_sideways(int orientation) { return orientation >= 5; }
constexpr bool mirrors_x(int orientation) { return (0b1100'1100 >> orientation & 1) != 0; }
constexpr bool mirrors_y(int orientation) { return (0b1'1001'1000 >> orientation & 1) != 0; }
// The orientation that also swaps columns and rows of the displayed image.
inline constexpr int kTransposedOrientation[] = {0, 5, 8, 7, 6, 1, 4, 3, 2};

}  // namespace headrace
