// Hash table of names as two plain arrays that can be stored in a file, without an object per name.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace headrace {

// Maximum names in one table. Member numbers are stored in 4 bytes.
constexpr std::size_t max_names = 0x7fffffff;

// Ids of names, sorted by bucket (their hash), then by name, then by id: bucket b is order[starts[b] .. starts[b + 1]).
// The number of buckets is a power of two, and at least the number of names. Buckets are binary searched, so that names
// crafted to collide cost O(log n) and not O(n).
struct NameTable {
    std::vector<std::uint32_t> starts;
    std::vector<std::int32_t> order;
};

// Names, borrowed: name i is text[offsets[i] .. offsets[i + 1]).
struct Names {
    std::string_view text;
    std::span<const std::uint64_t> offsets;

    std::size_t size() const { return offsets.size() - 1; }
    // Checked, since offsets may come from a file: throws Fault(corrupt) unless the name is within the text.
    std::string_view at(std::int64_t id) const;
};

// Throws Fault(limit) beyond max_names, and the errors of `name_of`.
NameTable build_name_table(std::size_t count, const std::function<std::string_view(std::int64_t)>& name_of);

// A table and its names, all borrowed. Every index in them is checked when it is used: they may come from a file.
struct NameLookup {
    Names names;
    std::span<const std::uint32_t> starts;
    std::span<const std::int32_t> order;

    // Returns the greatest id below `before` with this name; -1 if there is none. Throws Fault(corrupt).
    std::int64_t find(std::string_view name, std::int64_t before) const;
    // Returns the greatest id of that path; -1 if there is none. "./a" and "a" are one path; an exact match takes
    // precedence. Throws Fault(corrupt).
    std::int64_t find_path(std::string_view path) const;
};

}  // namespace headrace
