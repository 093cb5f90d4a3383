// Type of a source's pixels, if they are not colours.
#pragma once

#include <cstdint>

namespace headrace {

enum class PixelType : std::uint8_t { u8, u16, f32 };

inline int size_of(PixelType type) { return type == PixelType::u8 ? 1 : type == PixelType::u16 ? 2 : 4; }

}  // namespace headrace
