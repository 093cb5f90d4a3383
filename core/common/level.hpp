// Instruction-set levels, selected at run time; every level produces the same bits.
//
// scalar is the reference. portable runs on every CPU of the target architecture: NEON on aarch64, SSE2 on x86-64, from
// one source in vectors.hpp. The other levels are for x86-64.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

enum class Level : std::uint8_t { scalar = 0, portable = 1, avx2 = 2, avx512 = 3 };
inline constexpr int kLevels = 4;

// The highest level that this CPU supports; it supports all lower levels too.
Level best_level();
// Parses "scalar", "portable", "avx2", "avx512", or "best". Throws std::invalid_argument for any other name, and for
// levels that the CPU does not support.
Level parse_level(std::string_view name);
std::string_view level_name(Level);

}  // namespace headrace
