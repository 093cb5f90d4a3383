// Reasons why a sample could not be delivered. The core throws Fault while it processes one sample; the batch queue
// catches it and records it for that sample, so the rest of the batch is unaffected.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace headrace {

enum class Code : std::uint8_t {
    ok = 0,
    declined = 1,     // a format that the core leaves to Pillow
    corrupt = 2,      // content that cannot be decoded
    limit = 3,        // content beyond a limit (pixels, scans, chunk memory, bytes)
    unsupported = 4,  // well-formed content in an unsupported format (12-bit JPEG)
    io = 5,           // open or read failed
    changed = 6,      // the archive changed after it was indexed
    cancelled = 7,
    view = 8,      // the view is invalid, or does not fit the batch
    unfit = 9,     // the view does not fit this image (a crop larger than the image)
    memory = 10,   // out of memory: never the sample's fault
    outside = 11,  // a path leads out of its folder
    missing = 12,  // no file has the given name
};

struct Fault : std::runtime_error {
    Code code;
    Fault(Code c, const std::string& why) : std::runtime_error(why), code(c) {}
};

}  // namespace headrace
