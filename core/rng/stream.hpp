// Address of a random draw. There is no state: a draw is a function of its address, so it does not depend on threads,
// order or restarts.
//
//   key     = hash64(seed, epoch)
//   counter = (id low 32 bits, id high 32 bits, pass, dataset << 16 | stage << 8 | draw)
//   id      = base sample id | occurrence << 36
//
// The occurrence counts earlier appearances of the sample in the loaded selection: 0 without repeats.
#pragma once

#include <cstdint>

#include "rng/philox.hpp"

namespace headrace {

// Part of every saved state. Increment it with any change to the results of draws, keys or the permutation.
inline constexpr int kRngVersion = 1;

// Stages from here up are reserved for draws of an epoch or a batch.
inline constexpr int kFirstReservedStage = 240;

// Stages of draws that are made in Python.
enum class ReservedStage : int {
    offsets = 251,       // an epoch's samples, by bucket (plan/draws.py)
    draws = 252,         // an epoch's samples, by position (plan/draws.py)
    mixing = 253,        // mixing of a batch, addressed by step and pair (augment/mixing_draws.py)
    captions = 254,      // one of several captions (loader/decoding/texts.py)
    replacements = 255,  // replacement of a bad sample (plan/order.py)
};

struct Draw {
    std::uint64_t first, second;  // 64 independent random bits each
};

// Draws of one stage (one op of a view) for one sample in one pass.
struct Stream {
    std::uint64_t key, id;
    std::uint32_t pass;
    std::uint16_t dataset;
    std::uint8_t stage;

    Draw at(std::uint8_t draw) const {
        const std::uint32_t address = std::uint32_t{dataset} << 16 | std::uint32_t{stage} << 8 | draw;
        const PhiloxBlock block =
            philox4x32({static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32), pass, address}, key);
        return {block[0] | std::uint64_t{block[1]} << 32, block[2] | std::uint64_t{block[3]} << 32};
    }
};

// A multiple of 2^-53 in [0, 1), from the upper 53 bits.
inline double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// low + u * (high - low), u in [0, 1).
inline double uniform(std::uint64_t bits, double low, double high) { return low + unit_interval(bits) * (high - low); }

// An integer in [0, n) by multiply and shift: the upper 64 bits of bits * n. Its bias is below n / 2^64.
inline std::uint64_t below(std::uint64_t bits, std::uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(Wide{bits} * n >> 64);
}

}  // namespace headrace
