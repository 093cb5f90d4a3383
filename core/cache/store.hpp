// Store of byte entries by number, up to a limit. Without space reuse it evicts nothing: in shuffled epochs, the hit
// rate is exactly the stored fraction, whereas LRU would evict the entries needed next (CoorDL's MinIO: Mohan et al.,
// "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021). With space reuse, the caller chooses evictions.
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

// Part of an entry's data; an entry is the concatenation of its parts.
using Part = std::span<std::uint8_t>;
using ConstPart = std::span<const std::uint8_t>;
inline constexpr std::size_t kMostParts = 2;

// Shared by any number of threads and processes with the same file: all of them find an entry that one of them writes.
// Calls throw only std::bad_alloc: any failure is a miss.
class Store {
public:
    // Metadata of an entry.
    struct Item {
        std::uint64_t offset;
        std::uint32_t bytes, width, height, data_check, generation;
    };
    // Counts of this process since it created the store. Corrupt entries also count as misses.
    struct Counts {
        std::int64_t hits, misses, admitted, damaged, hit_bytes, admitted_bytes;
    };

    enum class Space : std::uint8_t { grows, reused };

    // Takes ownership of `fd`, a file of CacheKind::ours with these entries and the version for `space`. The limit
    // applies to the whole file.
    Store(int fd, std::uint64_t entries, std::uint64_t limit_bytes, Space space = Space::grows);
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    std::uint64_t entries() const { return entries_; }
    std::uint64_t limit_bytes() const { return limit_; }
    // Allocated bytes of the file, index included.
    std::uint64_t used_bytes() const;
    // Bytes available for entries in total.
    std::uint64_t room_bytes() const;
    // 0 while it admits entries; kFull at the limit; otherwise the errno of a failed write.
    static constexpr int kFull = -1;
    int stopped() const { return stopped_.load(std::memory_order_relaxed); }
    Counts counts() const;
    // Admits entries again after the limit was reached.
    void resume();

    // Finds the entry with a number below entries(). An absent entry counts as a miss.
    std::optional<Item> find(std::uint64_t index);
    // Counts an entry as missed that its reader did not look up.
    void miss() { add(misses_, 1); }
    // Like find(), but uncounted.
    std::optional<Item> peek(std::uint64_t index);
    // Reads a found entry into parts of item.bytes in total. If the data is corrupt, drops the entry, counts a miss and
    // returns false.
    bool read(std::uint64_t index, const Item& item, std::span<const Part> parts);
    // Drops an entry that its reader found invalid, and counts it as a miss and as damaged.
    void reject(std::uint64_t index, const Item& item);
    // Stores parts of less than 4 GiB in total. Returns false if there is no room left or the entry exists.
    bool put(std::uint64_t index, std::span<const ConstPart> parts, std::uint32_t width = 0, std::uint32_t height = 0);

    // --- with space reuse ---

    // Rebuilds the map of free space from the index, unless another open file description is in use. For a file on
    // disk: descriptors that share an open file description, such as inherited ones, count as one user.
    void recover();
    // Bytes occupied by each of `count` entries from `first` on, 0 for absent entries.
    std::vector<std::uint32_t> taken(std::uint64_t first, std::uint64_t count) const;
    // Drops entries and frees their space. Returns the freed bytes.
    std::uint64_t evict(std::span<const std::int64_t> indices);

private:
    using Counter = std::atomic<std::int64_t>;
    static void add(Counter& counter, std::int64_t by) { counter.fetch_add(by, std::memory_order_relaxed); }

    std::optional<std::uint64_t> place_for(const CacheEntry& now, std::uint64_t bytes);
    std::optional<std::uint64_t> allocate(std::uint64_t bytes);
    std::optional<std::uint64_t> append(std::uint64_t bytes);
    int publish(std::uint64_t index, CacheEntry& entry, int error);
    bool is_still(std::uint64_t index, const Item& item) const;
    // Frees an entry's space and returns its bytes. Needs the lock.
    std::uint64_t free_entry(std::uint64_t index, const CacheEntry& entry);
    void mend(std::uint64_t index);
    void drop(std::uint64_t index, const CacheEntry& entry);
    void stop(int why) { stopped_.store(why, std::memory_order_relaxed); }
    // The entry; nothing if it is unreadable or invalid.
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
