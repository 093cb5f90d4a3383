// Augmentations as a table of numbers: compiled from Python's classes, and used to draw chains.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace headrace {

// Groups have children; leaves are operations on the pixels of a canvas. The numbers are part of saved descriptions.
enum AugmentKind : int {
    kSequence = 1,  // all children, in order; without children, the identity
    kChoice = 2,    // c[0] children, drawn by weight, with replacement unless c[1]
    kOrder = 3,     // all children, in a random order
    kAugMix = 4,    // c[0] chains of c[1] draws (-1: 1 to 3) of the only child, mixed; c[2] alpha

    kBrightness = 10,       // factor
    kContrast = 11,         // factor
    kSaturation = 12,       // factor
    kHue = 13,              // shift in turns
    kGrayscale = 14,        //
    kInvert = 15,           //
    kSolarize = 16,         // threshold; c[0] 1 truncates it to an integer
    kPosterize = 17,        // bits; c[0] 0 rounds them to the nearest even, 1 down, 2 up
    kAutoContrast = 18,     //
    kEqualize = 19,         //
    kSharpness = 20,        // factor
    kGaussianBlur = 21,     // sigma; c[0] and c[1] are the kernel's width and height
    kPermuteChannels = 22,  // random permutation
    kErase = 23,            // c: scale low and high, ratio low and high, values (3), 1 for noise, 2 for a random colour
    kSolarizeAdd = 24,      // addend; c[0] threshold

    kAffine = 40,       // angle, translate x, y, scale, shear x, y; c[0] bilinear, c[1..3] fill, c[4] Translation,
                        // c[5] about the corner, c[6] shears are tangents
    kPerspective = 41,  // c[0] bilinear, c[1..3] fill, c[4] distortion
    kElastic = 42,      // alpha x, y, sigma x, y; c[0] bilinear, c[1..3] fill
};

inline bool is_group(int kind) { return kind < kBrightness; }
inline bool is_geometric(int kind) { return kind >= kAffine && kind <= kElastic; }

enum Distribution : int { kFixed = 0, kUniform = 1, kSteps = 2, kNormal = 3 };

// offset + s (low + t (high - low)): s is -1 or 1 if `is_signed`, else 1; t depends on the distribution with parameters
// x and y: fixed 0; uniform in [0, 1); k / (x - 1) with k below x; clip(x + y normal, 0, 1).
struct Parameter {
    int distribution;
    double low, high, x, y;
    bool is_signed;
    double offset;
};

inline constexpr std::size_t kParameters = 6, kParameterColumns = 7, kConstants = 8;
inline constexpr std::size_t kFirstParameter = 4, kFirstConstant = kFirstParameter + kParameters * kParameterColumns;
inline constexpr std::size_t kAugmentColumns = kFirstConstant + kConstants;
inline constexpr std::size_t kMaxNodes = 1024, kMaxDepth = 16, kMaxChain = 256;

struct AugmentNode {
    int kind;
    int children;        // number of direct children, which follow in preorder
    double probability;  // that the node runs
    double weight;       // among the children of a Choice
    Parameter parameters[kParameters];
    double constants[kConstants];
    int end;  // index after its last descendant
};

using AugmentProgram = std::vector<AugmentNode>;

// Parses rows of kAugmentColumns numbers, nodes in preorder. Throws Fault(view) unless every number is in its range.
AugmentProgram parse_augment(std::span<const double> table);

}  // namespace headrace
