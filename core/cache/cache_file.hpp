// A cache's file: made, told apart from others, read and written. Nothing of it is ever mapped, so that a file that
// another program cuts short is a short read and not the end of the process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "cache/layout.hpp"

namespace headrace {

// What a file is to who asks for these entries, this key and this stamp.
enum class CacheKind : std::uint8_t { ours, damaged, other_version, other_key, other_stamp };

class CacheFile {
public:
    explicit CacheFile(int fd) : fd_(fd) {}

    // Makes an empty file a cache of nothing. Returns 0, or what it failed with (errno).
    int make(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp,
             std::uint32_t version = kCacheVersion) const;
    CacheKind kind(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp,
                   std::uint32_t version = kCacheVersion) const;

    // Nothing for a tail that is damaged.
    std::optional<std::uint64_t> next() const;
    std::optional<CacheTail> tail() const;
    int set_next(std::uint64_t next, std::uint32_t group = 0) const;
    // The first byte that no intact entry has, found in the whole index.
    std::uint64_t find_next(std::uint64_t entries) const;

    // An entry as it lies there; nothing where it cannot be read.
    std::optional<CacheEntry> entry(std::uint64_t index) const;
    int set_entry(std::uint64_t index, const CacheEntry&) const;
    // Calls `see` with (index, entry) of those from `first` to `stop` - 1 whose checksum is right.
    template <typename See>
    void each_entry(std::uint64_t first, std::uint64_t stop, See see) const;
    // Whether no other opening of the file has joined. Then none can, until this one has.
    bool is_alone() const;
    // Counts this opening among those that use the file, until the last of its descriptors is closed.
    void join() const;
    std::uint64_t size() const;
    int cut(std::uint64_t bytes) const;

    // All of `parts`, one after the other, from or to `offset`. Reading: false where the file ends before, or fails.
    // Writing: 0 or errno. The arrays of parts are used up.
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
