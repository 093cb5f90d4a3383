// A cache's file: made, told apart from others, read and written. Nothing of it is ever mapped, so that a file that
// another program cuts short is a short read and not the end of the process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <sys/uio.h>

#include "cache/layout.hpp"

namespace headrace {

// What a file is to who asks for these entries, this key and this stamp.
enum class CacheKind : std::uint8_t { ours, damaged, other_version, other_key, other_stamp };

class CacheFile {
public:
    explicit CacheFile(int fd) : fd_(fd) {}

    // Makes an empty file a cache of nothing. Returns 0, or what it failed with (errno).
    int make(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp) const;
    CacheKind kind(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp) const;

    // Nothing for a tail that is damaged.
    std::optional<std::uint64_t> next() const;
    int set_next(std::uint64_t next) const;
    // The first byte that no intact entry has, found in the whole index.
    std::uint64_t find_next(std::uint64_t entries) const;

    // An entry as it lies there; nothing where it cannot be read.
    std::optional<CacheEntry> entry(std::uint64_t index) const;
    int set_entry(std::uint64_t index, const CacheEntry&) const;
    std::uint64_t size() const;

    // All of `parts`, one after the other, from or to `offset`. Reading: false where the file ends before, or fails.
    // Writing: 0 or errno. The arrays of parts are used up.
    bool read(std::uint64_t offset, std::span<iovec> parts) const;
    int write(std::uint64_t offset, std::span<iovec> parts) const;

private:
    bool read_at(std::uint64_t offset, void* to, std::size_t bytes) const;
    int write_at(std::uint64_t offset, const void* from, std::size_t bytes) const;

    int fd_;
};

}  // namespace headrace
