// The central directory of a zip: every member's name, place and form, without a look at the members themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// An entry a member in each array, in the order of the directory. Places and sizes are what the zip says of itself, 0
// or more, and not compared with the file.
struct ZipMembers {
    std::string names;  // UTF-8, unless the zip says so and it is not; name i is names[name_offsets[i] .. [i + 1])
    std::vector<std::uint64_t> name_offsets{0};
    std::vector<std::int64_t> size, packed;  // bytes of data, and of it in the zip
    std::vector<std::int64_t> offset;        // of the local header
    std::vector<std::uint32_t> method, crc, flags;
    std::vector<std::uint32_t> check;  // zip_header_check of what the local header must say
    std::int64_t start = 0;            // of the directory
};

// Finds the directory as Python's zipfile does (also behind other bytes, such as a program that unpacks it) and reads
// it as APPNOTE.TXT has it: ZIP64, names in code page 437 or UTF-8, or in Info-ZIP's field for those. Throws Fault: io
// (cannot be read), corrupt (no zip, or damaged), unsupported (a part of a zip that was split).
ZipMembers read_zip_directory(const std::string& path);

}  // namespace headrace
