// Checks of the size that an uncompressed image's header states.
#pragma once

#include <cstdint>
#include <string>

#include "common/fault.hpp"
#include "common/limits.hpp"

namespace headrace {

// Throws Fault: corrupt for an image without pixels, limit beyond max_pixels. Sides are below 2^30 afterwards, so that
// 64 bits hold the bytes of any format.
inline void check_size(const char* format, std::int64_t width, std::int64_t height, const Limits& limits) {
    constexpr std::int64_t kMost = 1 << 30;
    const auto fail = [&](Code code, const std::string& why) {
        throw Fault(code, std::string(format) + " of " + std::to_string(width) + "x" + std::to_string(height) + why);
    };
    if (width < 1 || height < 1) fail(Code::corrupt, " pixels");
    if (width >= kMost || height >= kMost || width * height > limits.max_pixels) {
        fail(Code::limit, " pixels, more than max_pixels=" + std::to_string(limits.max_pixels));
    }
}

// Throws Fault(corrupt) for a file shorter than `bytes`.
inline void check_whole(const char* format, std::int64_t bytes, std::size_t file_bytes) {
    if (static_cast<std::int64_t>(file_bytes) >= bytes) return;
    throw Fault(Code::corrupt, std::string(format) + " cut short: expected " + std::to_string(bytes) + " bytes, got " +
                                   std::to_string(file_bytes));
}

}  // namespace headrace
