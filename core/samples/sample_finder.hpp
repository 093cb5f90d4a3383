// Samples of several archives in sequence: their keys, and the member that each column uses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// Borrowed samples (core/samples/grouping.hpp) and member names of one archive. They may come from a file: every index
// is checked when it is used.
struct ArchiveSamples {
    std::string_view names;
    std::span<const std::uint64_t> name_offsets;
    std::span<const std::uint32_t> first;
    std::span<const std::int32_t> member;
    std::span<const std::uint8_t> extension;
    bool last_dot = false;  // how names were split
};

// Rank of an extension that a column never uses. A column uses the sample's member with the lowest rank.
constexpr std::uint8_t not_in_column = 255;

struct FoundMember {
    std::int64_t archive, member;
};

class SampleFinder {
public:
    void add(const ArchiveSamples& archive);

    std::int64_t size() const { return starts_.back(); }
    std::size_t archives() const { return archives_.size(); }

    // Returns the member of sample `id` that a column uses, given its 256 ranks for each archive; member -1 if the
    // sample has none. Throws Fault(corrupt), and std::out_of_range for an invalid id.
    FoundMember find(std::int64_t id, std::span<const std::uint8_t> ranks) const;

    // Valid as long as the archives' names are. Throws like `find`.
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
