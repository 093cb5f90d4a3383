// What a pixel of a source is, where it is not a colour.
#pragma once

#include <cstdint>

namespace headrace {

enum class Samples : std::uint8_t { u8, u16, f32 };

inline int size_of(Samples samples) { return samples == Samples::u8 ? 1 : samples == Samples::u16 ? 2 : 4; }

}  // namespace headrace
