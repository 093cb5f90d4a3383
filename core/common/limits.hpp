// Bounds on what untrusted content may cost. Every error that names a limit uses these field names.
#pragma once

#include <cstdint>

namespace headrace {

struct Limits {
    std::int64_t max_pixels = 178'956'970;        // as Pillow's decompression-bomb error
    std::int64_t max_jpeg_scans = 100;            // real progressive files have about 10
    std::int64_t max_png_chunk_bytes = 64 << 20;  // one chunk other than IDAT
    std::int64_t max_file_bytes = 1LL << 30;      // one encoded image

    bool operator==(const Limits&) const = default;
};

}  // namespace headrace
