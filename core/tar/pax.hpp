// PAX extended headers: "length key=value\n" records about the next member, or about all later members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace {

// Records that a scan needs; absent values were not given.
struct PaxRecords {
    std::optional<std::string> path, link_path;
    std::optional<std::int64_t> size;
    bool sparse = false;  // GNU.sparse.*: the data is packed, so its bytes are not the file's
};

// Parses the records in `text` and overwrites earlier values in `records`. Throws Fault(corrupt) on a malformed record.
void read_pax_records(std::string_view text, PaxRecords& records);

}  // namespace headrace
