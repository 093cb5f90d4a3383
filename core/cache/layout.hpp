// What a cache file holds, byte by byte: a header, where the next entry goes, an index, then data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

// Raised by every change of what lies in a file: an older file is then another version's, and is made anew.
inline constexpr std::uint32_t kCacheVersion = 1;
// Of a file whose space is used again: its data lie in groups, each with a map of what is taken (space_map.hpp).
inline constexpr std::uint32_t kReusedCacheVersion = 2;

using CacheDigest = std::array<std::uint8_t, 32>;

// At byte 0. Written once, when the file is made.
struct CacheHeader {
    char magic[8];
    std::uint32_t version;
    std::uint32_t check;  // CRC-32 of the header with this as 0
    std::uint64_t entries;
    CacheDigest key;    // what is kept: of which samples, cut and made how
    CacheDigest stamp;  // when the samples were last changed, as far as their files tell
};

// At kCacheTailAt. Rewritten, under a lock, each time that an entry is given its place.
struct CacheTail {
    std::uint64_t next;  // the first byte that no entry has; where space is used again, bytes that are taken
    std::uint32_t check;
    std::uint32_t group;  // in which space was found last; any number will do
};

enum class CacheState : std::uint32_t { empty = 0, kept = 1, dropped = 2 };

// At kCacheIndexAt + index * sizeof. All zero where nothing is kept. Written after its data.
struct CacheEntry {
    std::uint64_t offset;
    std::uint32_t bytes;
    CacheState state : 8;  // dropped: the data was damaged, and its place may be written again; or it was evicted
    std::uint32_t generation : 24;  // where space is used again: another one each time that the entry changes
    std::uint32_t width, height;    // of the source that it was made of, if that is an image
    std::uint32_t data_check;       // CRC-32
    std::uint32_t check;            // CRC-32 of the index and of all above
};

static_assert(sizeof(CacheHeader) == 88 && sizeof(CacheTail) == 16 && sizeof(CacheEntry) == 32);

inline constexpr std::uint64_t kCachePage = 4096;
inline constexpr std::uint64_t kCacheTailAt = 256, kCacheUsersAt = 512, kCacheIndexAt = kCachePage;
inline constexpr std::uint64_t kCacheMostEntries = std::uint64_t{1} << 40;

// Where data begins.
constexpr std::uint64_t cache_data_at(std::uint64_t entries) {
    const std::uint64_t end = kCacheIndexAt + entries * sizeof(CacheEntry);
    return (end + kCachePage - 1) / kCachePage * kCachePage;
}

std::uint32_t check_of(const CacheHeader&);
std::uint32_t check_of(const CacheTail&);
std::uint32_t check_of(std::uint64_t index, const CacheEntry&);

}  // namespace headrace
