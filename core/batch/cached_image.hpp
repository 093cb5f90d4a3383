// What a job keeps of a field, and how what was kept becomes what the batch holds.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/store.hpp"
#include "view/view.hpp"

namespace headrace {

// How far a sample is made when it is kept: not at all; its bytes as they were read; decoded and shrunk; or as it is in
// the batch, before flips and before pixels become floats.
enum class Cut : std::uint8_t { none, file, shrunk, final };

// Where a field's entries lie: that of the sample with base id i is number first + i.
struct CacheUse {
    std::shared_ptr<Store> store;
    std::uint64_t first = 0;
    Cut cut = Cut::none;
};

// One or more planes of pixels, one after the other.
struct Canvas {
    std::uint8_t* data;
    std::size_t planes, height, width, pixel_bytes;
};

// Turns a canvas over, in its place, as a view that flips would have made it.
void mirror(const Canvas&, bool from_left_to_right, bool upside_down);

struct SourceSize {
    int width, height;
};

// Of a copy whose short side is at most `short_side`, to the nearest pixel; the size itself where it is no more.
SourceSize shrunk_size(SourceSize, int short_side);

}  // namespace headrace
