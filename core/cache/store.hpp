// Bytes by number, kept until a limit is reached and never thrown out: of a shuffled epoch exactly the share that was
// kept is then found again, where the least recently used would always be what comes next (CoorDL's MinIO: Mohan et
// al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "cache/cache_file.hpp"
#include "cache/store_lock.hpp"

namespace headrace {

// One part of what an entry holds; an entry is its parts, one after the other.
using Part = std::span<std::uint8_t>;
using ConstPart = std::span<const std::uint8_t>;
inline constexpr std::size_t kMostParts = 2;

// Used by any number of threads, and by the processes that have the same file. What one of them writes others find.
// No call throws but for std::bad_alloc: whatever fails is a miss.
class Store {
public:
    // What an entry says of itself.
    struct Item {
        std::uint64_t offset;
        std::uint32_t bytes, width, height, data_check;
    };
    // Of this process, since it made the store. Damaged entries count as misses, too.
    struct Counts {
        std::int64_t hits, misses, admitted, damaged, hit_bytes, admitted_bytes;
    };

    // `fd` is a file of CacheKind::ours with these entries; it is owned from now on. The limit counts all of the file.
    Store(int fd, std::uint64_t entries, std::uint64_t limit_bytes);
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    std::uint64_t entries() const { return entries_; }
    std::uint64_t limit_bytes() const { return limit_; }
    // Bytes of the file that are given away, index included.
    std::uint64_t used_bytes() const;
    // 0 while it admits; kFull at the limit; else what a write failed with (errno).
    static constexpr int kFull = -1;
    int stopped() const { return stopped_.load(std::memory_order_relaxed); }
    Counts counts() const;

    // What is kept under a number below entries(); nothing counts as a miss.
    std::optional<Item> find(std::uint64_t index);
    // As find(), uncounted.
    std::optional<Item> peek(std::uint64_t index);
    // Reads what was found into parts of item.bytes together. False, and a miss, where it is not what was kept: the
    // entry is then dropped.
    bool read(std::uint64_t index, const Item& item, std::span<const Part> parts);
    // For who finds that an entry cannot be what was kept: a miss, damaged, dropped.
    void reject(std::uint64_t index, const Item& item);
    // Keeps parts of less than 4 GiB together. False where they are not kept: there is no room left, or something is
    // there already.
    bool put(std::uint64_t index, std::span<const ConstPart> parts, std::uint32_t width = 0, std::uint32_t height = 0);

private:
    using Counter = std::atomic<std::int64_t>;
    static void add(Counter& counter, std::int64_t by) { counter.fetch_add(by, std::memory_order_relaxed); }

    std::optional<std::uint64_t> place_for(const CacheEntry& now, std::uint64_t bytes);
    std::optional<std::uint64_t> allocate(std::uint64_t bytes);
    void drop(std::uint64_t index, const CacheEntry& entry);
    void stop(int why) { stopped_.store(why, std::memory_order_relaxed); }
    // Nothing where the file cannot be read there, or holds nonsense.
    std::optional<CacheEntry> intact(std::uint64_t index) const;

    const int fd_;
    const CacheFile file_;
    const std::uint64_t entries_, limit_;
    std::atomic<int> stopped_{0};
    Counter hits_{0}, misses_{0}, admitted_{0}, damaged_{0}, hit_bytes_{0}, admitted_bytes_{0};
};

}  // namespace headrace
