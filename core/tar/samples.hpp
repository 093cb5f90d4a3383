// Members that share a stem are one sample: the WebDataset layout, over names alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// A sample's fields are dense columns, so the number of distinct extensions multiplies the index.
constexpr std::size_t max_tar_extensions = 256;

struct TarSamples {
    std::string keys;  // key i is keys[key_offsets[i] .. key_offsets[i + 1]); samples in order of first appearance
    std::vector<std::uint64_t> key_offsets{0};
    std::vector<std::int64_t> sample_of;     // for each member; -1: belongs to none
    std::vector<std::int32_t> extension_of;  // for each member, into extensions; -1: belongs to none
    std::vector<std::string> extensions;     // lower-cased (ASCII), in order of first appearance
    std::string folders;                     // first path components of the keys, in order of first appearance
    std::vector<std::uint64_t> folder_offsets{0};
    std::vector<std::int32_t> folder_of;                           // for each sample; -1: its key has no folder
    std::int64_t hidden = 0, metadata = 0, without_extension = 0;  // members that belong to no sample
};

// Groups the regular files among the members (types are TarHeader's; all others belong to no sample), wherever they lie
// in the archive. The key is the name, less a leading "./", up to the first dot of its last component and the extension
// what follows (as webdataset's base_plus_ext); names whose last component begins with a dot, and webdataset's own
// "__name__" entries, belong to no sample.
// Throws Fault(limit) beyond max_tar_extensions.
TarSamples group_members(std::string_view names, std::span<const std::uint64_t> name_offsets,
                         std::span<const std::uint8_t> types);

}  // namespace headrace
