// Layout of a cache file: a header, a tail with the position of the next entry, an index, then data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

// Incremented by every change of the layout: a file of another version is recreated.
inline constexpr std::uint32_t kCacheVersion = 1;
// Version of files with space reuse: data is in groups, each with a map of its used space (space_map.hpp).
inline constexpr std::uint32_t kReusedCacheVersion = 2;

using CacheDigest = std::array<std::uint8_t, 32>;

// At byte 0. Written once, when the file is created.
struct CacheHeader {
    char magic[8];
    std::uint32_t version;
    std::uint32_t check;  // CRC-32 of the header with this as 0
    std::uint64_t entries;
    CacheDigest key;    // identity of the cached data: samples, view and processing
    CacheDigest stamp;  // modification times of the samples' files
};

// At kCacheTailAt. Rewritten under a lock whenever an entry is allocated.
struct CacheTail {
    std::uint64_t next;  // end of the last entry; with space reuse, used bytes
    std::uint32_t check;
    std::uint32_t group;  // group of the last allocation; a hint only
};

enum class CacheState : std::uint32_t { empty = 0, kept = 1, dropped = 2 };

// At kCacheIndexAt + index * sizeof. All zero if nothing is stored. Written after its data.
struct CacheEntry {
    std::uint64_t offset;
    std::uint32_t bytes;
    CacheState state : 8;           // dropped: the data was corrupt and may be overwritten, or it was evicted
    std::uint32_t generation : 24;  // with space reuse: changes with every change of the entry
    std::uint32_t width, height;    // of the source, if it is an image
    std::uint32_t data_check;       // CRC-32
    std::uint32_t check;            // CRC-32 of the index and all fields above
};

static_assert(sizeof(CacheHeader) == 88 && sizeof(CacheTail) == 16 && sizeof(CacheEntry) == 32);

inline constexpr std::uint64_t kCachePage = 4096;
inline constexpr std::uint64_t kCacheTailAt = 256, kCacheUsersAt = 512, kCacheIndexAt = kCachePage;
inline constexpr std::uint64_t kCacheMostEntries = std::uint64_t{1} << 40;

// Offset at which the data begins.
constexpr std::uint64_t cache_data_at(std::uint64_t entries) {
    const std::uint64_t end = kCacheIndexAt + entries * sizeof(CacheEntry);
    return (end + kCachePage - 1) / kCachePage * kCachePage;
}

std::uint32_t check_of(const CacheHeader&);
std::uint32_t check_of(const CacheTail&);
std::uint32_t check_of(std::uint64_t index, const CacheEntry&);

}  // namespace headrace
