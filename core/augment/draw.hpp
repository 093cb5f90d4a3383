// From a program of augmentations to the chain of operations that one image gets: every choice is made here, no pixel
// is touched, so that the chain is the same on every machine and for whoever runs it, core or device.
//
// Draws are taken one after another: draw n is stage 64 + n / 256, draw n % 256 of the sample's Stream, and gives two
// words. Their order is the contract:
//   - a node whose probability is below 1 takes one draw; it runs where unit_interval(first) < probability;
//   - Order takes one draw for each child but the first: Fisher-Yates from the last place down, below(first, place +
//   1);
//   - Choice takes one draw for each of its turns, before the child's own: the child whose cumulative weight first
//     exceeds unit_interval(first) * sum of weights; without replacement, of the children that are left;
//   - a leaf takes one draw for each parameter that is drawn or signed, in their order: t from first, the sign from
//     second (negative where its highest bit is set). A normal t takes draws of its own until one is accepted
//     (Marsaglia's polar method: u = 2 unit(first) - 1, v = 2 unit(second) - 1, accepted where 0 < u u + v v < 1, then
//     u sqrt(-2 log(s) / s)), and its sign, if signed, is that of one more draw's second word;
//   - PermuteChannels takes two draws (Fisher-Yates over three), Erase two for each of ten attempts, Perspective four,
//     Elastic one (the key of its noise), each described where it is drawn (draw.cpp);
//   - AugMix: the mixing weight, then the chains' weights (gamma draws), then each chain's depth and its operations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "augment/program.hpp"
#include "rng/stream.hpp"

namespace headrace {

// Marks of AugMix in a chain: begin; each branch with its weight; end with the weight of the branches' sum.
inline constexpr int kMixBegin = 90, kMixBranch = 91, kMixEnd = 92;

inline constexpr std::size_t kDrawnArgs = 14;

// An operation with its numbers: for pixels the parameters, then what the kind needs of the constants; for geometric
// ones bilinear (0 or 1), three values of fill, and the map from output to source pixels as 3 x 3 numbers by rows.
struct DrawnOp {
    int kind;
    double args[kDrawnArgs];
};

using Chain = std::vector<DrawnOp>;

// Standard normal values, one after another, the same for a key: by the polar method, draw n of which is the Philox
// block of counter n.
class Noise {
public:
    explicit Noise(std::uint64_t key) : key_(key) {}
    double normal();

private:
    std::uint64_t key_, next_ = 0;
    double spare_ = 0;
    bool has_spare_ = false;
};

// The key whose halves stand in an erasure's arguments.
inline std::uint64_t noise_key(double high, double low) {
    return static_cast<std::uint64_t>(high) << 32 | static_cast<std::uint64_t>(low);
}

// Of one image of this size. The stream's stage is ignored.
Chain draw_chain(const AugmentProgram&, const Stream&, int width, int height);

}  // namespace headrace
