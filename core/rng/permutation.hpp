// Keyed permutation of range(n) in O(1) memory: the order of an epoch without a list of it.
//
// A Feistel network over the next power of two, with cycle walking back into range (Black and Rogaway, "Ciphers with
// arbitrary finite domains", CT-RSA 2002). The power of two is less than 2n, so a walk takes at most two steps on
// average. With an odd number of bits the halves differ in size, and rounds alternate between them.
//
// Each round depends on the previous one, so several positions are permuted in parallel lanes; a finished lane takes
// the next position.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "rng/hash.hpp"

namespace headrace {

class Permutation {
public:
    static constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 62;

    // 1 <= n <= kMaxLength
    Permutation(std::uint64_t n, std::uint64_t key) : n_(n) {
        const int bits = std::max(2, static_cast<int>(std::bit_width(n - 1)));
        low_bits_ = bits - bits / 2;
        low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
        high_mask_ = (std::uint64_t{1} << bits / 2) - 1;
        rounds_ = bits < 16 ? kMaxRounds : 12;
        for (std::size_t round = 0; round < rounds_; ++round) round_keys_[round] = hash64(key, round);
    }

    // Positions and results are < n; distinct positions have distinct results.
    void apply(const std::int64_t* positions, std::int64_t* results, std::size_t count) const;

    // Inverse of apply().
    void invert(const std::int64_t* results, std::int64_t* positions, std::size_t count) const;

private:
    static constexpr std::size_t kLanes = 8;
    using Lanes = std::array<std::uint64_t, kLanes>;

    // Four rounds suffice for wide halves (Luby and Rackoff, 1988). Halves of one or two bits mix slowly: after 16
    // rounds the 720 orders of 6 elements were still not equally likely (tests/test_rng.py counts them).
    static constexpr std::size_t kMaxRounds = 32;

    template <auto Step>
    void walk(const std::int64_t* in, std::int64_t* out, std::size_t count) const;

    void encrypt(Lanes& values) const;
    void decrypt(Lanes& values) const;
    void split(const Lanes& values, Lanes& low, Lanes& high) const;

    std::uint64_t n_, low_mask_, high_mask_;
    int low_bits_;
    std::size_t rounds_;
    std::array<std::uint64_t, kMaxRounds> round_keys_;
};

}  // namespace headrace
