#include "view/program.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "common/fault.hpp"
#include "rng/stream.hpp"

namespace headrace {
namespace {

static_assert(kMaxOps <= kFirstReservedStage, "op number s draws from stage s");

constexpr int kMaxParameter = 1 << 24;  // pixels; sums of a few stay far inside 32 bits
constexpr double kMaxRatio = 1e6;       // keeps exp and log in their range
constexpr int kMaxTiles = 64;           // per side

enum class Range { size, length, count, probability, fraction, ratio };

// Parameters of one kind, in order; the rest of a row is unused.
struct Signature {
    ViewKind kind;
    std::size_t count;
    Range ranges[7];
};

constexpr Signature kSignatures[] = {
    {kRandomResizedCrop, 6, {Range::size, Range::size, Range::fraction, Range::fraction, Range::ratio, Range::ratio}},
    {kResizeShort, 2, {Range::size, Range::length}},
    {kResize, 2, {Range::size, Range::size}},
    {kCenterCrop, 2, {Range::size, Range::size}},
    {kRandomCrop,
     7,
     {Range::size, Range::size, Range::length, Range::length, Range::length, Range::length, Range::length}},
    {kLetterbox, 2, {Range::size, Range::size}},
    {kHorizontalFlip, 1, {Range::probability}},
    {kVerticalFlip, 1, {Range::probability}},
    {kFiveCrop, 2, {Range::size, Range::size}},
    {kTenCrop, 3, {Range::size, Range::size, Range::length}},
    {kTiles, 4, {Range::size, Range::size, Range::count, Range::count}},
    {kQuarterTurn, 4, {Range::probability, Range::probability, Range::probability, Range::probability}},
};

// NaN fails every comparison.
bool within(Range range, double value) {
    const bool whole = std::floor(value) == value && value <= kMaxParameter;
    switch (range) {
        case Range::size:
            return whole && value >= 1;
        case Range::length:
            return whole && value >= 0;
        case Range::count:
            return whole && value >= 1 && value <= kMaxTiles;
        case Range::probability:
            return value >= 0 && value <= 1;
        case Range::fraction:
            return value > 0 && value <= 1;
        case Range::ratio:
            return value >= 1 / kMaxRatio && value <= kMaxRatio;
    }
    return false;
}

[[noreturn]] void refuse(std::size_t row, const std::string& why) {
    throw Fault(Code::view, "op " + std::to_string(row) + " of the view: " + why);
}

ViewOp parse_op(std::span<const double> values, std::size_t row) {
    const auto* signature = std::find_if(std::begin(kSignatures), std::end(kSignatures),
                                         [&](const Signature& s) { return static_cast<double>(s.kind) == values[0]; });
    if (signature == std::end(kSignatures)) refuse(row, "unknown kind " + std::to_string(values[0]));
    ViewOp op{signature->kind, {}};
    for (std::size_t i = 0; i < signature->count; ++i) {
        op.p[i] = values[i + 1];
        if (!within(signature->ranges[i], op.p[i]))
            refuse(row, "parameter " + std::to_string(i) + " is out of range: " + std::to_string(op.p[i]));
    }
    if (op.kind == kRandomResizedCrop && (op.p[2] > op.p[3] || op.p[4] > op.p[5]))
        refuse(row, "scale and ratio must be (low, high)");
    return op;
}

}  // namespace

std::vector<ViewOp> parse_program(std::span<const double> table) {
    if (table.size() % kProgramColumns != 0 || table.size() / kProgramColumns > kMaxOps)
        throw Fault(Code::view, "a view is at most " + std::to_string(kMaxOps) + " ops of " +
                                    std::to_string(kProgramColumns) + " numbers; got " + std::to_string(table.size()) +
                                    " numbers");
    std::vector<ViewOp> program;
    for (std::size_t row = 0; row < table.size() / kProgramColumns; ++row)
        program.push_back(parse_op(table.subspan(row * kProgramColumns, kProgramColumns), row));
    return program;
}

std::optional<OutputSize> output_size(std::span<const ViewOp> program) {
    std::optional<OutputSize> size;
    for (const ViewOp& op : program) {
        if (op.kind == kHorizontalFlip || op.kind == kVerticalFlip) continue;
        if (op.kind == kQuarterTurn) {
            const bool swaps = op.p[1] > 0 || op.p[3] > 0;
            if (swaps && size && size->height != size->width) size.reset();
            continue;
        }
        if (op.kind == kResizeShort)
            size.reset();
        else
            size = OutputSize{static_cast<int>(op.p[0]), static_cast<int>(op.p[1])};
    }
    return size;
}

std::optional<int> copies_of(std::span<const ViewOp> program) {
    std::optional<int> copies;
    for (const ViewOp& op : program) {
        if (op.kind == kFiveCrop) copies = 5;
        if (op.kind == kTenCrop) copies = 10;
        if (op.kind == kTiles) copies = static_cast<int>(op.p[2] * op.p[3]);
    }
    return copies;
}

bool is_random(std::span<const ViewOp> program) {
    return std::any_of(program.begin(), program.end(), [](const ViewOp& op) {
        return op.kind == kRandomResizedCrop || op.kind == kRandomCrop || op.kind == kHorizontalFlip ||
               op.kind == kVerticalFlip || op.kind == kQuarterTurn;
    });
}

bool resizes(std::span<const ViewOp> program) {
    return std::any_of(program.begin(), program.end(), [](const ViewOp& op) {
        return op.kind == kRandomResizedCrop || op.kind == kResizeShort || op.kind == kResize || op.kind == kLetterbox;
    });
}

}  // namespace headrace
