// 64-bit hash of two words, for the keys of epochs and of keys derived from them.
#pragma once

#include <cstdint>

namespace headrace {

inline constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio, odd

// The output function of splitmix64 (Steele, Lea and Flood, OOPSLA 2014; constants by Stafford, mix 13). A bijection.
inline std::uint64_t mix64(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

// mix64((mix64(a + gamma) ^ b) + gamma). For fixed a it is a bijection of b, and vice versa, so two epochs of one seed
// never share a key, nor do two seeds in one epoch.
inline std::uint64_t hash64(std::uint64_t a, std::uint64_t b) {
    return mix64((mix64(a + kGoldenGamma) ^ b) + kGoldenGamma);
}

}  // namespace headrace
