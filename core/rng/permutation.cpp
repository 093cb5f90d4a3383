#include "rng/permutation.hpp"

namespace headrace {

template <auto Step>
void Permutation::walk(const std::int64_t* in, std::int64_t* out, std::size_t count) const {
    Lanes values{};
    std::array<std::size_t, kLanes> places{};
    const std::size_t lanes = std::min(kLanes, count);
    for (std::size_t i = 0; i < lanes; ++i) {
        values[i] = static_cast<std::uint64_t>(in[i]);
        places[i] = i;
    }
    std::size_t next = lanes;
    for (std::size_t done = 0; done < count;) {
        (this->*Step)(values);
        for (std::size_t i = 0; i < lanes; ++i) {
            if (values[i] >= n_ || places[i] == count) continue;
            out[places[i]] = static_cast<std::int64_t>(values[i]);
            ++done;
            places[i] = next;  // `count` marks a lane without a position
            if (next < count) values[i] = static_cast<std::uint64_t>(in[next++]);
        }
    }
}

void Permutation::encrypt(Lanes& values) const {
    Lanes low, high;
    split(values, low, high);
    for (std::size_t round = 0; round < rounds_; round += 2) {
        for (std::size_t i = 0; i < kLanes; ++i) high[i] ^= mix64(low[i] ^ round_keys_[round]) & high_mask_;
        for (std::size_t i = 0; i < kLanes; ++i) low[i] ^= mix64(high[i] ^ round_keys_[round + 1]) & low_mask_;
    }
    for (std::size_t i = 0; i < kLanes; ++i) values[i] = high[i] << low_bits_ | low[i];
}

void Permutation::decrypt(Lanes& values) const {
    Lanes low, high;
    split(values, low, high);
    for (std::size_t round = rounds_; round > 0; round -= 2) {
        for (std::size_t i = 0; i < kLanes; ++i) low[i] ^= mix64(high[i] ^ round_keys_[round - 1]) & low_mask_;
        for (std::size_t i = 0; i < kLanes; ++i) high[i] ^= mix64(low[i] ^ round_keys_[round - 2]) & high_mask_;
    }
    for (std::size_t i = 0; i < kLanes; ++i) values[i] = high[i] << low_bits_ | low[i];
}

void Permutation::split(const Lanes& values, Lanes& low, Lanes& high) const {
    for (std::size_t i = 0; i < kLanes; ++i) {
        low[i] = values[i] & low_mask_;
        high[i] = values[i] >> low_bits_;
    }
}

void Permutation::apply(const std::int64_t* positions, std::int64_t* results, std::size_t count) const {
    walk<&Permutation::encrypt>(positions, results, count);
}

void Permutation::invert(const std::int64_t* results, std::int64_t* positions, std::size_t count) const {
    walk<&Permutation::decrypt>(results, positions, count);
}

}  // namespace headrace
