// Why a sample could not be delivered. The core throws Fault while it works on one sample; the batch
// queue catches it and records it against that sample, so nothing else of the batch is touched.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace headrace {

enum class Code : std::uint8_t {
    ok = 0,
    declined = 1,     // a format the core leaves to Pillow
    corrupt = 2,      // content that cannot be decoded
    limit = 3,        // content beyond a limit (pixels, scans, chunk memory, bytes)
    unsupported = 4,  // well-formed content that nothing here decodes (12-bit JPEG)
    io = 5,           // transport: open or read failed
    changed = 6,      // the archive is no longer what was indexed
    cancelled = 7,
    view = 8,      // the view is nonsense, or does not fit the batch
    unfit = 9,     // the view asks for what this image does not have (a crop that is larger than it)
    memory = 10,   // none left: never the sample's fault
    outside = 11,  // a path leads out of the folder that it has to stay in
    missing = 12,  // a name was given, and no file has that name
};

struct Fault : std::runtime_error {
    Code code;
    Fault(Code c, const std::string& why) : std::runtime_error(why), code(c) {}
};

}  // namespace headrace
