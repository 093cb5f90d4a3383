// Instruction-set levels. Code for a higher one is chosen at run time; every level gives the same bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

enum class Level : std::uint8_t { scalar = 0, avx2 = 1, avx512 = 2 };

// The best level that this processor has.
Level best_level();
// "scalar", "avx2", "avx512", or "best". Throws std::invalid_argument for others, and for what the processor lacks.
Level parse_level(std::string_view name);
std::string_view level_name(Level);

}  // namespace headrace
