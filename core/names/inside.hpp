// Check that a relative path stays in its folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace headrace {

// True for an absolute path, and for a path with `..` that climbs above its start. Lexical only: symbolic links in the
// folder are its owner's and may lead anywhere.
inline bool leads_out(std::string_view path) {
    if (path.starts_with('/')) return true;
    std::size_t depth = 0;
    while (!path.empty()) {
        const std::string_view part = path.substr(0, path.find('/'));
        path.remove_prefix(std::min(part.size() + 1, path.size()));
        if (part == ".." && depth-- == 0) return true;
        if (!part.empty() && part != "." && part != "..") ++depth;
    }
    return false;
}

}  // namespace headrace
