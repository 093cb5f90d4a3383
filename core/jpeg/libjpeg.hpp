// What everything that calls libjpeg shares: its errors as faults, limits on what a file may cost, and checks that a
// file is complete.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>

#include <jpeglib.h>

#include "common/fault.hpp"
#include "common/limits.hpp"

namespace headrace {

// Error handler that returns to `jump`, which the caller sets before each group of calls.
struct ErrorManager {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
    Code code;
    bool ran_short;  // the entropy decoder reached the end of the data in mid-image
    bool damaged;    // a warning says that data is lost or misread

    // Makes this the handler of one decompressor or compressor, or both of a transcoder.
    jpeg_error_mgr* handler();
    // Forgets the previous file.
    void reset();
    Fault fault() const { return {code, text}; }
};

// Limit on the number of scans, as a libjpeg progress monitor.
struct ScanLimit {
    jpeg_progress_mgr base;
    std::int64_t most;

    void watch(jpeg_decompress_struct&, const Limits&);
};

// Returns why a file with this header is not decoded: unsupported (12-bit, lossless), limit, corrupt (more pixels than
// its bytes can hold); without `cmyk` also declined.
std::optional<Fault> header_fault(const jpeg_decompress_struct&, std::size_t file_bytes, const Limits&, bool cmyk);

// Blocks of all components.
std::uint64_t block_count(const jpeg_decompress_struct&);

// True if an end-of-image marker follows the start of the scan.
bool has_end(std::span<const std::uint8_t> scan);

// True if some bits of a coefficient, or a whole component, are missing.
bool lacks_scans(const jpeg_decompress_struct&);

// The error for a file that ends before its image does.
Fault cut_short(std::size_t file_bytes);

}  // namespace headrace
