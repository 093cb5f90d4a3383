// What a pixel of a source is, where it is not a colour.
#pragma once

#include <cstdint>

namespace headrace {

enum class PixelType : std::uint8_t { u8, u16, f32 };

inline int size_of(PixelType type) { return type == PixelType::u8 ? 1 : type == PixelType::u16 ? 2 : 4; }

}  // namespace headrace
