// Map of the used space in a cache file with space reuse. Data is in groups; each begins with a bitmap of its units, so
// that a file can grow with its limit. An entry is contiguous and within one group.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/cache_file.hpp"

namespace headrace {

// All calls except static ones need the store's lock. The maps are not trusted: a wrong bit lets entries overlap, which
// their checksums detect, or loses space until rebuild().
class SpaceMap {
public:
    static constexpr std::uint64_t kUnit = 1024, kGroupUnits = 1 << 18;
    static constexpr std::uint64_t kMapBytes = kGroupUnits / 8, kGroupBytes = kMapBytes + kGroupUnits * kUnit;

    SpaceMap(const CacheFile& file, std::uint64_t entries, std::uint64_t limit_bytes)
        : file_(file), entries_(entries), limit_(limit_bytes), first_(cache_data_at(entries)) {}

    // Bytes of the units that an entry of `bytes` occupies.
    static constexpr std::uint64_t taken_by(std::uint64_t bytes) {
        return (bytes / kUnit + (bytes % kUnit != 0)) * kUnit;
    }
    // Bytes of a file for metadata, and bytes available for data.
    std::uint64_t overhead() const { return first_ + groups() * kMapBytes; }
    std::uint64_t room() const;
    // Maximum bytes of one entry, which must fit in one group.
    std::uint64_t largest() const;
    // True if an entry may be at this position.
    bool is_place(std::uint64_t offset, std::uint64_t bytes) const;

    // Allocates contiguous space; no offset if there is none. `error` is 0 or errno.
    struct Taken {
        std::optional<std::uint64_t> offset;
        int error;
    };
    Taken take(std::uint64_t bytes);
    // Frees the space of an entry. Returns 0 or errno.
    int give_back(std::uint64_t offset, std::uint64_t bytes);
    // Rebuilds the maps from the index; the file must have no other user. Frees the allocations of killed processes,
    // drops entries above the limit and truncates the file there.
    int rebuild();

private:
    std::uint64_t map_at(std::uint64_t group) const { return first_ + group * kGroupBytes; }
    std::uint64_t data_at(std::uint64_t group) const { return map_at(group) + kMapBytes; }
    // Number of groups below the limit.
    std::uint64_t groups() const;
    std::uint64_t units_of(std::uint64_t group) const;

    const CacheFile& file_;
    const std::uint64_t entries_, limit_, first_;
};

}  // namespace headrace
