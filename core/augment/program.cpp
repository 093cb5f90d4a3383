#include "augment/program.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/fault.hpp"

namespace headrace {
namespace {

constexpr double kMost = 1e6;
constexpr double kLeastScale = 1e-3;  // of an image's scale, and of a blur in pixels
constexpr double kMostShear = 89;     // degrees
constexpr double kLeastAlpha = 0.1;   // keeps the exponent of a gamma draw in the range of exact_exp

[[noreturn]] void refuse(std::size_t row, const std::string& why) {
    throw Fault(Code::view, "node " + std::to_string(row) + " of the augmentation: " + why);
}

[[noreturn]] void refuse_length(std::size_t row) {
    refuse(row, "more than " + std::to_string(kMaxChain) + " operations on one image");
}

bool is_known(int kind) {
    return (kind >= kSequence && kind <= kAugMix) || (kind >= kBrightness && kind <= kSolarizeAdd) ||
           (kind >= kAffine && kind <= kElastic);
}

bool is_whole(double value, double low, double high) {
    return value >= low && value <= high && std::floor(value) == value;
}

Parameter parse_parameter(const double* at, std::size_t row) {
    if (!is_whole(at[0], kFixed, kNormal)) refuse(row, "unknown distribution " + std::to_string(at[0]));
    for (std::size_t i = 1; i < kParameterColumns; ++i)
        if (!(std::abs(at[i]) <= kMost)) refuse(row, "a number is out of range: " + std::to_string(at[i]));
    const Parameter p{static_cast<int>(at[0]), at[1], at[2], at[3], at[4], at[5] != 0, at[6]};
    if (p.distribution == kSteps && !is_whole(p.x, 1, kMost)) refuse(row, "expected at least one step");
    if (p.distribution == kNormal && p.y < 0) refuse(row, "expected a deviation of at least 0");
    return p;
}

// True if all possible values of the parameter are in [low, high].
bool lies_in(const Parameter& p, double low, double high) {
    const double last = p.distribution == kFixed ? p.low : p.high;
    double from = std::min(p.low, last), to = std::max(p.low, last);
    if (p.is_signed) {
        to = std::max(-from, to);
        from = -to;
    }
    return p.offset + from >= low && p.offset + to <= high;
}

// Checks the limits of each kind's arithmetic.
void check_constants(const AugmentNode& node, std::size_t row) {
    const double* c = node.constants;
    const Parameter* p = node.parameters;
    bool fits = true;
    if (node.kind == kChoice) fits = is_whole(c[0], 1, 16) && is_whole(c[1], 0, 1);
    if (node.kind == kAugMix)
        fits = is_whole(c[0], 1, 8) && (c[1] == -1 || is_whole(c[1], 1, 8)) && c[2] >= kLeastAlpha;
    if (node.kind == kHue) fits = lies_in(p[0], -0.5, 0.5);
    if (node.kind == kGaussianBlur)
        fits = is_whole(c[0], 1, 255) && is_whole(c[1], 1, 255) && std::fmod(c[0], 2) == 1 && std::fmod(c[1], 2) == 1 &&
               lies_in(p[0], kLeastScale, kMost);
    if (node.kind == kErase)
        fits = c[0] >= 0 && c[0] <= c[1] && c[1] <= 1 && c[2] >= 1 / kMost && c[2] <= c[3] && is_whole(c[7], 0, 2);
    if (node.kind == kPosterize) fits = is_whole(c[0], 0, 2);
    if (node.kind == kSolarize) fits = is_whole(c[0], 0, 1);
    if (node.kind == kAffine) {
        const double shear = c[6] != 0 ? kMost : kMostShear;
        fits = is_whole(c[4], 0, 4) && lies_in(p[3], kLeastScale, kMost) && lies_in(p[4], -shear, shear) &&
               lies_in(p[5], -shear, shear);
    }
    if (node.kind == kPerspective) fits = c[4] >= 0 && c[4] <= 1;
    if (node.kind == kElastic) fits = lies_in(p[2], 0, 100) && lies_in(p[3], 0, 100);
    if (!fits) refuse(row, "a number is out of range");
}

AugmentNode parse_node(const double* at, std::size_t row) {
    AugmentNode node{};
    if (!is_whole(at[0], 0, 99) || !is_known(static_cast<int>(at[0])))
        refuse(row, "unknown kind " + std::to_string(at[0]));
    node.kind = static_cast<int>(at[0]);
    if (!is_whole(at[1], 0, kMaxNodes)) refuse(row, "expected a number of children");
    node.children = static_cast<int>(at[1]);
    if (!is_group(node.kind) && node.children != 0) refuse(row, "an operation has no children");
    if (is_group(node.kind) && node.kind != kSequence && node.children == 0) refuse(row, "expected at least one child");
    if (node.kind == kAugMix && node.children != 1) refuse(row, "expected one child");
    node.probability = at[2];
    node.weight = at[3];
    if (!(node.probability >= 0 && node.probability <= 1)) refuse(row, "expected a probability from 0 to 1");
    if (!(node.weight >= 0 && node.weight <= kMost)) refuse(row, "expected a weight of at least 0");
    for (std::size_t k = 0; k < kParameters; ++k)
        node.parameters[k] = parse_parameter(at + kFirstParameter + k * kParameterColumns, row);
    for (std::size_t k = 0; k < kConstants; ++k) {
        node.constants[k] = at[kFirstConstant + k];
        if (!(std::abs(node.constants[k]) <= kMost)) refuse(row, "a constant is out of range");
    }
    check_constants(node, row);
    return node;
}

// Sets `end` of the node and its descendants; returns the maximum number of operations that it can add to a chain.
std::size_t close_node(AugmentProgram& program, std::size_t at, std::size_t depth, int& next) {
    if (at >= program.size()) refuse(at, "expected more children");
    if (depth > kMaxDepth) refuse(at, "groups are nested too deep");
    AugmentNode& node = program[at];
    next = static_cast<int>(at) + 1;
    std::size_t all = 0, most = 0;
    double weights = 0, weighted = 0;
    for (int child = 0; child < node.children; ++child) {
        const double weight = program[std::min<std::size_t>(next, program.size() - 1)].weight;
        weights += weight;
        weighted += weight > 0;
        const std::size_t one = close_node(program, next, depth + 1, next);
        all += one;
        most = std::max(most, one);
    }
    node.end = next;
    if (node.kind == kAugMix &&
        std::any_of(program.begin() + static_cast<std::ptrdiff_t>(at) + 1, program.begin() + node.end,
                    [](const AugmentNode& below) { return below.kind == kAugMix; }))
        refuse(at, "an AugMix in an AugMix");
    if (node.kind == kChoice && !(weights > 0)) refuse(at, "expected a child of weight above 0");
    if (node.kind == kChoice && node.constants[1] != 0 && weighted < node.constants[0])
        refuse(at, "expected as many children of weight above 0 as are drawn");
    // An empty sequence counts as an operation, so that their number is limited too.
    std::size_t longest = is_group(node.kind) ? std::max<std::size_t>(all, 1) : 1;
    if (node.kind == kChoice) longest = most * static_cast<std::size_t>(node.constants[0]);
    if (node.kind == kAugMix)
        longest = 2 + static_cast<std::size_t>(node.constants[0]) *
                          (1 + most * static_cast<std::size_t>(node.constants[1] < 0 ? 3 : node.constants[1]));
    if (longest > kMaxChain) refuse_length(at);
    return longest;
}

}  // namespace

AugmentProgram parse_augment(std::span<const double> table) {
    if (table.size() % kAugmentColumns != 0 || table.size() / kAugmentColumns > kMaxNodes)
        throw Fault(Code::view, "an augmentation is at most " + std::to_string(kMaxNodes) + " nodes of " +
                                    std::to_string(kAugmentColumns) + " numbers");
    AugmentProgram program;
    for (std::size_t row = 0; row < table.size() / kAugmentColumns; ++row)
        program.push_back(parse_node(table.data() + row * kAugmentColumns, row));
    int next = 0;
    std::size_t longest = 0;
    for (std::size_t at = 0; at < program.size(); at = static_cast<std::size_t>(next))
        longest += close_node(program, at, 1, next);
    if (longest > kMaxChain) refuse_length(0);
    return program;
}

}  // namespace headrace
