// WebDataset layout: the sample of an archive member, from its name alone.
#pragma once

#include <string_view>

namespace headrace {

struct MemberName {
    std::string_view key;        // empty, like the extension, if the member belongs to no sample
    std::string_view extension;  // verbatim
    bool hidden = false, metadata = false;
};

// Strips leading "./" from the name.
std::string_view without_dot_slash(std::string_view name);

// Splits a name, without a leading "./", at the first dot of its last component into key and extension (like
// webdataset's base_plus_ext). Names with a leading dot in the last component (hidden), webdataset's "__name__" entries
// (metadata) and names without an extension belong to no sample. `last_dot`: splits at the last dot instead.
MemberName split_name(std::string_view name, bool last_dot = false);

}  // namespace headrace
