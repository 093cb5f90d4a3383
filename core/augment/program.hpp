// A description of augmentations as numbers: what Python's classes compile to, and what chains are drawn from.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace headrace {

// Groups have children; leaves are operations on the pixels of a canvas. Numbers are part of every saved description.
enum AugmentKind : int {
    kSequence = 1,  // all children, in their order; of none, the image as it is
    kChoice = 2,    // c[0] children, drawn by weight, with replacement unless c[1]
    kOrder = 3,     // all children, in a drawn order
    kAugMix = 4,    // c[0] chains of c[1] draws (-1: 1 to 3) of the one child, mixed; c[2] alpha

    kBrightness = 10,       // factor
    kContrast = 11,         // factor
    kSaturation = 12,       // factor
    kHue = 13,              // shift in turns
    kGrayscale = 14,        //
    kInvert = 15,           //
    kSolarize = 16,         // threshold; c[0] 1 cuts it to a whole number
    kPosterize = 17,        // bits; c[0] 0 rounds them to the nearest even, 1 down, 2 up
    kAutoContrast = 18,     //
    kEqualize = 19,         //
    kSharpness = 20,        // factor
    kGaussianBlur = 21,     // sigma; c[0] and c[1] are the kernel's width and height
    kPermuteChannels = 22,  // a drawn permutation
    kErase = 23,        // c: scale low and high, ratio low and high, values (3), 1 for noise, 2 for one drawn colour
    kSolarizeAdd = 24,  // addend; c[0] threshold

    kAffine = 40,       // angle, translate x, y, scale, shear x, y; c[0] bilinear, c[1..3] fill, c[4] Translation,
                        // c[5] about the corner, c[6] shears are tangents
    kPerspective = 41,  // c[0] bilinear, c[1..3] fill, c[4] distortion
    kElastic = 42,      // alpha x, y, sigma x, y; c[0] bilinear, c[1..3] fill
};

inline bool is_group(int kind) { return kind < kBrightness; }
inline bool is_geometric(int kind) { return kind >= kAffine && kind <= kElastic; }

enum Distribution : int { kFixed = 0, kUniform = 1, kSteps = 2, kNormal = 3 };

// offset + s (low + t (high - low)): s is -1 or 1 where `is_signed`, else 1; t follows from the distribution, which x
// and y belong to: fixed 0; uniform in [0, 1); k / (x - 1) with k below x; clip(x + y normal, 0, 1).
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
    int children;        // direct ones, which follow in preorder
    double probability;  // that the node is run at all
    double weight;       // among the children of a Choice
    Parameter parameters[kParameters];
    double constants[kConstants];
    int end;  // the number of the node after its last descendant
};

using AugmentProgram = std::vector<AugmentNode>;

// Rows of kAugmentColumns numbers, nodes in preorder. Fault(view) unless every number is in its range.
AugmentProgram parse_augment(std::span<const double> table);

}  // namespace headrace
