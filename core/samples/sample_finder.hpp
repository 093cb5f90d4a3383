// The samples of several archives, one after another: their keys, and which member each column takes of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// One archive's samples (core/samples/grouping.hpp) and its members' names, all borrowed. They may come from a file:
// every index in them is checked when it is used.
struct ArchiveSamples {
    std::string_view names;
    std::span<const std::uint64_t> name_offsets;
    std::span<const std::uint32_t> first;
    std::span<const std::int32_t> member;
    std::span<const std::uint8_t> extension;
};

// A rank of an extension: a column takes of a sample the member of the lowest one, and never one of this rank.
constexpr std::uint8_t not_in_column = 255;

struct FoundMember {
    std::int64_t archive, member;
};

class SampleFinder {
public:
    void add(const ArchiveSamples& archive);

    std::int64_t size() const { return starts_.back(); }
    std::size_t archives() const { return archives_.size(); }

    // The member of sample `id` that a column takes, given its 256 ranks for each archive; member -1: the sample has
    // none of these. Throws Fault(corrupt), and std::out_of_range for an id that is none.
    FoundMember find(std::int64_t id, std::span<const std::uint8_t> ranks) const;

    // Valid as long as the archives' names are. Throws as `find` does.
    std::string_view key(std::int64_t id) const;

private:
    struct Place {
        std::int64_t archive;
        std::uint32_t first, end;  // its members, in `member`
    };
    Place place(std::int64_t id) const;

    std::vector<ArchiveSamples> archives_;
    std::vector<std::int64_t> starts_{0};  // id of each archive's first sample
};

}  // namespace headrace
