// Draws the view of one sample. The same address (key, id, pass, dataset) always gives the same view, bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "view/program.hpp"
#include "view/view.hpp"

namespace headrace {

// The program comes from parse_program. key = hash64(seed, epoch), id is the sample's base id, and op number s draws
// from stage s of its stream. Without an op the view is the whole source. `copy` is the number of the view among those
// of its sample. Fault(view) when the source cannot be cut so: it is smaller than a RandomCrop, say.
View sample_view(std::span<const ViewOp> program, std::uint64_t key, std::uint64_t id, std::uint32_t pass,
                 std::uint16_t dataset, int source_width, int source_height, int copy = 0);

// The same view of another field of the sample, whose pixels cover the same scene at another resolution: the window
// and the tap bounds scale, the output stays. Fault(unfit) when the aspect ratios differ by more than one
// pixel's rounding.
View scale_view(const View& view, int from_width, int from_height, int to_width, int to_height);

}  // namespace headrace
