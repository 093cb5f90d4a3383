// Instruction-set levels. Code for a higher one is chosen at run time; every level gives the same bits.
//
// scalar is the reference. portable is what every processor of the kind that the core is built for can run: NEON on
// aarch64, SSE2 on x86-64, by one source in vectors.hpp. The others are of x86-64.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

enum class Level : std::uint8_t { scalar = 0, portable = 1, avx2 = 2, avx512 = 3 };
inline constexpr int kLevels = 4;

// The best level that this processor has; it has all those below too.
Level best_level();
// "scalar", "portable", "avx2", "avx512", or "best". Throws std::invalid_argument for others, and for what the
// processor lacks.
Level parse_level(std::string_view name);
std::string_view level_name(Level);

}  // namespace headrace
