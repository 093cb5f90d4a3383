// Philox4x32-10: a counter-based random function. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011. The same address always yields the same bits, on any thread and in any order.
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// 128 random bits for one counter under one key (its low word is Random123's key[0]).
inline PhiloxBlock philox4x32(PhiloxBlock counter, std::uint64_t key) {
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
                   static_cast<std::uint32_t>(product0)};
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    return counter;
}

}  // namespace headrace
