// Caching of a job's fields, and conversion of cached pixels to the batch's.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/store.hpp"
#include "view/view.hpp"

namespace headrace {

// Processing stage at which a sample is cached: not at all; the bytes read; decoded and shrunk; or as in the batch,
// before flips and conversion to floats.
enum class Cut : std::uint8_t { none, file, shrunk, final };

// Location of a field's entries: the sample with base id i has entry first + i.
struct CacheUse {
    std::shared_ptr<Store> store;
    std::uint64_t first = 0;
    Cut cut = Cut::none;
};

// One or more consecutive planes of pixels.
struct Canvas {
    std::uint8_t* data;
    std::size_t planes, height, width, pixel_bytes;
};

// Flips a canvas in place, equal to the result of a view with flips.
void mirror(const Canvas&, bool from_left_to_right, bool upside_down);

struct SourceSize {
    int width, height;
};

// Size of a copy with a short side of at most `short_side`, rounded to the nearest pixel; unchanged if already smaller.
SourceSize shrunk_size(SourceSize, int short_side);

}  // namespace headrace
