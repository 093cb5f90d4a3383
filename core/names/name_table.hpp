// Finds one name among many without an object for each: a hash table as two plain arrays, to be kept in a file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace headrace {

// Names in one table. Numbers of members take 4 bytes wherever they are kept.
constexpr std::size_t max_names = 0x7fffffff;

// Ids of the names, sorted by bucket (their hash), then by name, then by id: those of bucket b are
// order[starts[b] .. starts[b + 1]). The number of buckets is a power of two, and at least that of the names.
// A bucket is searched by halving, so that names chosen to share one cost O(log n) and not O(n).
struct NameTable {
    std::vector<std::uint32_t> starts;
    std::vector<std::int32_t> order;
};

// Names, borrowed: name i is text[offsets[i] .. offsets[i + 1]).
struct Names {
    std::string_view text;
    std::span<const std::uint64_t> offsets;

    std::size_t size() const { return offsets.size() - 1; }
    // Checked, since they may come from a file: throws Fault(corrupt) unless it lies within the text.
    std::string_view at(std::int64_t id) const;
};

// Throws Fault: limit beyond max_names, and what `name_of` throws.
NameTable build_name_table(std::size_t count, const std::function<std::string_view(std::int64_t)>& name_of);

// A table and its names, all borrowed. Every index in them is checked when it is used: they may come from a file.
struct NameLookup {
    Names names;
    std::span<const std::uint32_t> starts;
    std::span<const std::int32_t> order;

    // The greatest id below `before` whose name is `name`; -1 if there is none. Throws Fault(corrupt).
    std::int64_t find(std::string_view name, std::int64_t before) const;
    // The greatest id of that path, -1 if there is none: "./a" and "a" are one path, and the one that is written in
    // the same way goes first. Throws Fault(corrupt).
    std::int64_t find_path(std::string_view path) const;
};

}  // namespace headrace
