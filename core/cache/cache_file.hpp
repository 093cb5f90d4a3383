// File of a cache: creation, identification, reads and writes. It is never mapped, so that truncation by another
// program is a short read and does not crash the process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "cache/layout.hpp"

namespace headrace {

// Match of a file with the expected entries, key and stamp.
enum class CacheKind : std::uint8_t { ours, damaged, other_version, other_key, other_stamp };

class CacheFile {
public:
    explicit CacheFile(int fd) : fd_(fd) {}

    // Initializes an empty file as an empty cache. Returns 0 or errno.
    int make(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp,
             std::uint32_t version = kCacheVersion) const;
    CacheKind kind(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp,
                   std::uint32_t version = kCacheVersion) const;

    // Nothing if the tail is corrupt.
    std::optional<std::uint64_t> next() const;
    std::optional<CacheTail> tail() const;
    int set_next(std::uint64_t next, std::uint32_t group = 0) const;
    // End of the last intact entry, found by scanning the whole index.
    std::uint64_t find_next(std::uint64_t entries) const;

    // The unchecked entry; nothing if it cannot be read.
    std::optional<CacheEntry> entry(std::uint64_t index) const;
    int set_entry(std::uint64_t index, const CacheEntry&) const;
    // Calls `see(index, entry)` for the entries in [first, stop) with a correct checksum.
    template <typename See>
    void each_entry(std::uint64_t first, std::uint64_t stop, See see) const;
    // True if no other open file description has joined. Then none can join before this one.
    bool is_alone() const;
    // Registers this open file description as a user of the file until its last descriptor is closed.
    void join() const;
    std::uint64_t size() const;
    int cut(std::uint64_t bytes) const;

    // Transfers all of `parts` in order, from or to `offset`. read() returns false if the file ends early or the read
    // fails; write() returns 0 or errno. Both modify the array of parts.
    bool read(std::uint64_t offset, std::span<iovec> parts) const;
    int write(std::uint64_t offset, std::span<iovec> parts) const;

    bool read_at(std::uint64_t offset, void* to, std::size_t bytes) const;
    int write_at(std::uint64_t offset, const void* from, std::size_t bytes) const;

private:
    int fd_;
};

template <typename See>
void CacheFile::each_entry(std::uint64_t first, std::uint64_t stop, See see) const {
    constexpr std::uint64_t kAtOnce = 4096;
    std::vector<CacheEntry> some(kAtOnce);
    for (; first < stop; first += kAtOnce) {
        const std::uint64_t count = std::min(kAtOnce, stop - first);
        if (!read_at(kCacheIndexAt + first * sizeof(CacheEntry), some.data(), count * sizeof(CacheEntry))) return;
        for (std::uint64_t i = 0; i < count; ++i) {
            if (some[i].check == check_of(first + i, some[i])) see(first + i, some[i]);
        }
    }
}

}  // namespace headrace
