// Drawing of a sample's view. The same address (key, id, pass, dataset) always yields the same view, bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "view/program.hpp"
#include "view/view.hpp"

namespace headrace {

// The program comes from parse_program. key = hash64(seed, epoch), id is the sample's base id, and op number s draws
// from stage s of its stream. Without ops the view is the whole source. `copy` is the view's number within its sample.
// Throws Fault(unfit) if the program does not fit the source: for example, it is smaller than a RandomCrop. Throws
// Fault(view) for a resize of what a crop has padded: the program is at fault, as the image is a good one.
View sample_view(std::span<const ViewOp> program, std::uint64_t key, std::uint64_t id, std::uint32_t pass,
                 std::uint16_t dataset, int source_width, int source_height, int copy = 0);

// Scales a view to another field of the sample with the same scene at another resolution: the window and the tap bounds
// scale with the sizes, the output and its padding by `factor`. Throws Fault(unfit) if the aspect ratios differ by more
// than one pixel's rounding; if `exact`, unless the field is `factor` times as large, so that whole pixels stay whole.
View scale_view(const View& view, int from_width, int from_height, int to_width, int to_height, int factor = 1,
                bool exact = false);

}  // namespace headrace
