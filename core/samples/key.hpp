// The WebDataset layout: which sample a member of an archive belongs to, by its name alone.
#pragma once

#include <string_view>

namespace headrace {

struct MemberName {
    std::string_view key;        // empty, as the extension is, where the member belongs to no sample
    std::string_view extension;  // as it is written
    bool hidden = false, metadata = false;
};

// The name less the leading "./" that says nothing.
std::string_view without_dot_slash(std::string_view name);

// The key is the name, less a leading "./", up to the first dot of its last component and the extension what follows
// (as webdataset's base_plus_ext). Names whose last component begins with a dot (hidden), webdataset's own "__name__"
// entries (metadata) and those without an extension belong to no sample.
MemberName split_name(std::string_view name);

}  // namespace headrace
