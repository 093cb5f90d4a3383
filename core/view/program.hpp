// Views as a table of numbers: compiled from Python's view classes, and used by the core to draw views.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace headrace {

// Sizes are height before width, as in Python; the numbers are the first column of the table that Python passes.
enum ViewKind : int {
    kRandomResizedCrop = 1,  // height, width, scale low, scale high, ratio low, ratio high (ratio = width / height)
    kResizeShort = 2,        // size of the short side, maximum long side (0: any)
    kResize = 3,             // height, width
    kCenterCrop = 4,         // height, width
    kRandomCrop = 5,         // height, width, pad left, top, right, bottom, pad_if_needed (0 or 1)
    kLetterbox = 6,          // height, width
    kHorizontalFlip = 7,     // probability
    kVerticalFlip = 8,       // probability
    // The copy's number selects the window of these.
    kFiveCrop = 9,      // height, width
    kTenCrop = 10,      // height, width, 1 if the second five crops are flipped vertically, 0 if horizontally
    kTiles = 11,        // height, width, rows, columns
    kQuarterTurn = 12,  // probabilities of 0, 90, 180 and 270 degrees counterclockwise
};

struct ViewOp {
    int kind;
    double p[9];
};

inline constexpr std::size_t kProgramColumns = 10;
inline constexpr std::size_t kMaxOps = 64;

// table holds kProgramColumns values per op: the kind, then p. Throws Fault(view) unless every number is in its range.
std::vector<ViewOp> parse_program(std::span<const double> table);

struct OutputSize {
    int height, width;
};

// The size of all views of the program; nothing if it depends on the source.
std::optional<OutputSize> output_size(std::span<const ViewOp> program);

// The number of views per sample that the program defines; nothing if it defines none.
std::optional<int> copies_of(std::span<const ViewOp> program);

// True if views of the program depend on their key.
bool is_random(std::span<const ViewOp> program);

// True if a step resizes, so that an output pixel need not be a source pixel.
bool resizes(std::span<const ViewOp> program);

}  // namespace headrace
