// Which space of a cache's file is taken, where space is used again. Data lie in groups; each begins with a map of its
// units, a bit a unit, so that a file grows with its limit. An entry lies in one group, on end.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/cache_file.hpp"

namespace headrace {

// All calls but static ones need the store's lock. What the maps say is never trusted: a bit that is wrong lets entries
// overlap, which their checksums tell, or loses space until rebuild().
class SpaceMap {
public:
    static constexpr std::uint64_t kUnit = 1024, kGroupUnits = 1 << 18;
    static constexpr std::uint64_t kMapBytes = kGroupUnits / 8, kGroupBytes = kMapBytes + kGroupUnits * kUnit;

    SpaceMap(const CacheFile& file, std::uint64_t entries, std::uint64_t limit_bytes)
        : file_(file), entries_(entries), limit_(limit_bytes), first_(cache_data_at(entries)) {}

    // Bytes of units that an entry of `bytes` takes.
    static constexpr std::uint64_t taken_by(std::uint64_t bytes) {
        return (bytes / kUnit + (bytes % kUnit != 0)) * kUnit;
    }
    // Bytes of a file that hold no data, and those that may.
    std::uint64_t overhead() const { return first_ + groups() * kMapBytes; }
    std::uint64_t room() const;
    // Most bytes that one entry may take, since it lies in one group.
    std::uint64_t largest() const;
    // Whether an entry may lie there.
    bool is_place(std::uint64_t offset, std::uint64_t bytes) const;

    // Takes as much on end; no offset where there is none. `error` is 0 or errno.
    struct Taken {
        std::optional<std::uint64_t> offset;
        int error;
    };
    Taken take(std::uint64_t bytes);
    // 0 or errno.
    int give_back(std::uint64_t offset, std::uint64_t bytes);
    // Takes exactly what the index says, for nobody else who uses the file: what a killed process had taken is free
    // again. Entries above the limit are gone, and the file ends there.
    int rebuild();

private:
    std::uint64_t map_at(std::uint64_t group) const { return first_ + group * kGroupBytes; }
    std::uint64_t data_at(std::uint64_t group) const { return map_at(group) + kMapBytes; }
    // Below the limit.
    std::uint64_t groups() const;
    std::uint64_t units_of(std::uint64_t group) const;

    const CacheFile& file_;
    const std::uint64_t entries_, limit_, first_;
};

}  // namespace headrace
