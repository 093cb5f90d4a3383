// Members that share a stem are one sample: the WebDataset layout, over names alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "names/name_table.hpp"

namespace headrace {

// Extensions take one byte a member.
constexpr std::size_t max_extensions = 256;

// The members of sample i are member[first[i] .. first[i + 1]), one an extension and at least one; samples come in the
// order of their first members.
struct Samples {
    std::vector<std::uint32_t> first{0};
    std::vector<std::int32_t> member;
    std::vector<std::uint8_t> extension;  // of each of `member`, into extensions
    std::vector<std::string> extensions;  // lower-cased (ASCII), in order of first appearance
    std::string folders;                  // first path components of the keys, in order of first appearance
    std::vector<std::uint64_t> folder_offsets{0};
    std::vector<std::int32_t> folder_of;                           // for each sample; -1: its key has no folder
    std::int64_t hidden = 0, metadata = 0, without_extension = 0;  // members that belong to no sample
    std::int64_t duplicates = 0;                                   // members that a later one stands for
};

// Groups the regular files among the members (types are those of tar), wherever they lie in the archive, by the keys
// that split_name gives them; the names' offsets must divide them. Of members with the same key and extension the last
// counts, as when extracting. Throws Fault(limit) beyond max_extensions or max_names.
Samples group_members(const Names& names, std::span<const std::uint8_t> types);

}  // namespace headrace
