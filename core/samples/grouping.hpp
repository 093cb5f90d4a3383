// Grouping of members into samples by name in the WebDataset layout: members that share a stem form a sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "names/name_table.hpp"

namespace headrace {

// Extensions are stored in one byte per member.
constexpr std::size_t max_extensions = 256;

// The members of sample i are member[first[i] .. first[i + 1]), at least one, with distinct extensions; samples are
// ordered by their first members.
struct Samples {
    std::vector<std::uint32_t> first{0};
    std::vector<std::int32_t> member;
    std::vector<std::uint8_t> extension;  // index into `extensions` for each member
    std::vector<std::string> extensions;  // lower-cased (ASCII), in order of first appearance
    std::string folders;                  // first path components of the keys, in order of first appearance
    std::vector<std::uint64_t> folder_offsets{0};
    std::vector<std::int32_t> folder_of;                           // for each sample; -1: its key has no folder
    std::int64_t hidden = 0, metadata = 0, without_extension = 0;  // members that belong to no sample
    std::int64_t duplicates = 0;                                   // members replaced by a later member
};

// Groups the regular files among the members (by tar type), anywhere in the archive, by their split_name keys; the name
// offsets must be ascending and within the text. The last of several members with one key and extension counts, as in
// extraction. Throws Fault(limit) beyond max_extensions or max_names.
Samples group_members(const Names& names, std::span<const std::uint8_t> types, bool last_dot = false);

}  // namespace headrace
