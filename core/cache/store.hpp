// Bytes by number, kept until a limit is reached. A store that does not reuse space throws nothing out: of a shuffled
// epoch exactly the share that was kept is then found again, where the least recently used would always be what comes
// next (CoorDL's MinIO: Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021). One that
// reuses space drops what its caller names.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/cache_file.hpp"
#include "cache/space_map.hpp"
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
        std::uint32_t bytes, width, height, data_check, generation;
    };
    // Of this process, since it made the store. Damaged entries count as misses, too.
    struct Counts {
        std::int64_t hits, misses, admitted, damaged, hit_bytes, admitted_bytes;
    };

    enum class Space : std::uint8_t { grows, reused };

    // `fd` is a file of CacheKind::ours with these entries, of the version for that space; it is owned from now on. The
    // limit counts all of the file.
    Store(int fd, std::uint64_t entries, std::uint64_t limit_bytes, Space space = Space::grows);
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    std::uint64_t entries() const { return entries_; }
    std::uint64_t limit_bytes() const { return limit_; }
    // Bytes of the file that are given away, index included.
    std::uint64_t used_bytes() const;
    // Bytes that entries may take together.
    std::uint64_t room_bytes() const;
    // 0 while it admits; kFull at the limit; else what a write failed with (errno).
    static constexpr int kFull = -1;
    int stopped() const { return stopped_.load(std::memory_order_relaxed); }
    Counts counts() const;
    // Admits again after the limit was reached.
    void resume();

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

    // --- where space is reused ---

    // Takes what is written down of free space from the index, unless another opening of the file is in use. Of a file
    // on a disk: the descriptors of one opening, such as those that are handed on, are not told apart.
    void recover();
    // Bytes that are taken for each of `count` entries from `first` on, 0 where nothing is kept.
    std::vector<std::uint32_t> taken(std::uint64_t first, std::uint64_t count) const;
    // Drops entries and frees their space. Bytes that are free now.
    std::uint64_t evict(std::span<const std::int64_t> indices);

private:
    using Counter = std::atomic<std::int64_t>;
    static void add(Counter& counter, std::int64_t by) { counter.fetch_add(by, std::memory_order_relaxed); }

    std::optional<std::uint64_t> place_for(const CacheEntry& now, std::uint64_t bytes);
    std::optional<std::uint64_t> allocate(std::uint64_t bytes);
    std::optional<std::uint64_t> append(std::uint64_t bytes);
    int publish(std::uint64_t index, CacheEntry& entry, int error);
    bool is_still(std::uint64_t index, const Item& item) const;
    // The bytes that it took. Needs the lock.
    std::uint64_t free_entry(std::uint64_t index, const CacheEntry& entry);
    void mend(std::uint64_t index);
    void drop(std::uint64_t index, const CacheEntry& entry);
    void stop(int why) { stopped_.store(why, std::memory_order_relaxed); }
    // Nothing where the file cannot be read there, or holds nonsense.
    std::optional<CacheEntry> intact(std::uint64_t index) const;

    const int fd_;
    const CacheFile file_;
    const std::uint64_t entries_, limit_;
    const Space space_;
    SpaceMap map_;
    std::atomic<int> stopped_{0};
    Counter hits_{0}, misses_{0}, admitted_{0}, damaged_{0}, hit_bytes_{0}, admitted_bytes_{0};
};

}  // namespace headrace
