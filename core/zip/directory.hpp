// Central directory of a zip: every member's name, offset and method, without reading the members.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// One entry per member in each array, in the order of the directory. Offsets and sizes are the zip's own claims, at
// least 0 and not checked against the file.
struct ZipMembers {
    std::string names;  // UTF-8, unless wrongly marked as such; name i is names[name_offsets[i] .. [i + 1])
    std::vector<std::uint64_t> name_offsets{0};
    std::vector<std::int64_t> size, packed;  // bytes of data, uncompressed and in the zip
    std::vector<std::int64_t> offset;        // of the local header
    std::vector<std::uint32_t> method, crc, flags;
    std::vector<std::uint32_t> check;  // zip_header_check of the expected local header
    std::int64_t start = 0;            // of the directory
};

// Finds the directory like Python's zipfile (also after other bytes, such as a self-extractor) and parses it by
// APPNOTE.TXT: ZIP64, names in code page 437, UTF-8, or Info-ZIP's UTF-8 field. Throws Fault: io (unreadable), corrupt
// (not a zip, or corrupt), unsupported (part of a split zip).
ZipMembers read_zip_directory(const std::string& path);

}  // namespace headrace
