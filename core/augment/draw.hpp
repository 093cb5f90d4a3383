// Drawing of an image's chain of operations from a program of augmentations. All random choices are made here, without
// touching pixels, so that the chain is the same on every machine and for both executors, core and device.
//
// Draws are sequential: draw n is stage 64 + n / 256, draw n % 256 of the sample's Stream, and has two words. Their
// order is the contract:
//   - a node with a probability below 1 takes one draw; it runs if unit_interval(first) < probability;
//   - Order takes one draw for each child but the first: Fisher-Yates from the last place down, below(first, place +
//   1);
//   - Choice takes one draw for each of its turns, before the child's own: the child whose cumulative weight first
//     exceeds unit_interval(first) * sum of weights; without replacement, among the remaining children;
//   - a leaf takes one draw for each parameter that is random or signed, in their order: t from first, the sign from
//     second (negative if its highest bit is set). A normal t takes further draws until one is accepted (Marsaglia's
//     polar method: u = 2 unit(first) - 1, v = 2 unit(second) - 1, accepted if 0 < u u + v v < 1, then
//     u sqrt(-2 log(s) / s)), and its sign, if signed, comes from the second word of one more draw;
//   - PermuteChannels takes two draws (Fisher-Yates over three), Erase two for each of ten attempts, Perspective four,
//     Elastic one (the key of its noise), each described at its implementation (draw.cpp);
//   - AugMix: the mixing weight, then the chains' weights (gamma draws), then each chain's depth and its operations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "augment/program.hpp"
#include "rng/stream.hpp"

namespace headrace {

// Markers of AugMix in a chain: begin; each branch with its weight; end with the weight of the branches' sum.
inline constexpr int kMixBegin = 90, kMixBranch = 91, kMixEnd = 92;

inline constexpr std::size_t kDrawnArgs = 14;

// Operation with its arguments: for pixel operations the parameters, then the constants that the kind needs; for
// geometric operations bilinear (0 or 1), three values of fill, and the 3 x 3 map from output to source pixels by rows.
struct DrawnOp {
    int kind;
    double args[kDrawnArgs];
};

using Chain = std::vector<DrawnOp>;

// Sequence of standard normal values, determined by a key: the polar method, with the Philox block of counter n as
// draw n.
class Noise {
public:
    explicit Noise(std::uint64_t key) : key_(key) {}
    double normal();

private:
    std::uint64_t key_, next_ = 0;
    double spare_ = 0;
    bool has_spare_ = false;
};

// Joins the halves of a key in an erasure's arguments.
inline std::uint64_t noise_key(double high, double low) {
    return static_cast<std::uint64_t>(high) << 32 | static_cast<std::uint64_t>(low);
}

// Draws the chain of one image of this size. The stream's stage is ignored.
Chain draw_chain(const AugmentProgram&, const Stream&, int width, int height);

}  // namespace headrace
