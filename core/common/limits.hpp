// Bounds on the cost of untrusted content. Every error that names a limit uses these field names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

struct Limits {
    std::int64_t max_pixels = 178'956'970;        // Pillow's threshold for a decompression-bomb error
    std::int64_t max_jpeg_scans = 100;            // real progressive files have about 10
    std::int64_t max_png_chunk_bytes = 64 << 20;  // one chunk other than IDAT
    std::int64_t max_file_bytes = 1LL << 30;      // one encoded image
    std::int64_t max_decode_bytes = 2LL << 30;    // memory for whole images, over all threads of a loader
    // Decoding by Pillow: allowed formats, by Pillow's names, and the time limit in a separate process.
    std::vector<std::string> formats{"AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000",
                                     "PNG",  "PPM", "TGA", "TIFF", "WEBP"};
    double max_decode_s = 30;

    bool operator==(const Limits&) const = default;
};

}  // namespace headrace
