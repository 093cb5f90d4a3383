// A description of views as numbers: what Python's view classes compile to, and what the core draws views from.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace headrace {

// Sizes are height before width, as in Python; the numbers are the first column of the table that Python passes.
enum ViewKind : int {
    kRandomResizedCrop = 1,  // height, width, scale low, scale high, ratio low, ratio high (ratio = width / height)
    kResizeShort = 2,        // size of the short side, greatest long side (0: any)
    kResize = 3,             // height, width
    kCenterCrop = 4,         // height, width
    kRandomCrop = 5,         // height, width, pad left, top, right, bottom, pad_if_needed (0 or 1)
    kLetterbox = 6,          // height, width
    kHorizontalFlip = 7,     // probability
    kVerticalFlip = 8,       // probability
    // Which window they cut follows from the copy's number.
    kFiveCrop = 9,  // height, width
    kTenCrop = 10,  // height, width, 1 if the second five are of the image upside down, else 0: from left to right
    kTiles = 11,    // height, width, rows, columns
};

struct ViewOp {
    int kind;
    double p[9];
};

inline constexpr std::size_t kProgramColumns = 10;
inline constexpr std::size_t kMaxOps = 64;

// table holds kProgramColumns values an op: the kind, then p. Fault(view) unless every number is in its range.
std::vector<ViewOp> parse_program(std::span<const double> table);

struct OutputSize {
    int height, width;
};

// What every view of the program measures; nothing when that depends on the source.
std::optional<OutputSize> output_size(std::span<const ViewOp> program);

// How many views a sample has, as the program says; nothing where that is left open.
std::optional<int> copies_of(std::span<const ViewOp> program);

// Whether views of the program depend on their key.
bool is_random(std::span<const ViewOp> program);

}  // namespace headrace
