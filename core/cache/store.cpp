#include "cache/store.hpp"

#include <array>
#include <limits>
#include <thread>

#include <libdeflate.h>
#include <unistd.h>

namespace headrace {

namespace {

// Attempts to read an entry: while another process writes it, a read may return neither the old nor the new entry.
constexpr int kLooks = 3;
constexpr int kTaken = -2;

template <typename Span>
std::uint32_t check_of_parts(std::span<const Span> parts) {
    std::uint32_t check = 0;
    for (const Span& part : parts) check = libdeflate_crc32(check, part.data(), part.size());
    return check;
}

template <typename Span>
std::uint64_t bytes_of(std::span<const Span> parts) {
    std::uint64_t bytes = 0;
    for (const Span& part : parts) bytes += part.size();
    return bytes;
}

template <typename Span>
std::array<iovec, kMostParts> vectors_of(std::span<const Span> parts) {
    std::array<iovec, kMostParts> vectors{};
    for (std::size_t i = 0; i < parts.size(); ++i) {
        vectors[i] = {const_cast<std::uint8_t*>(parts[i].data()), parts[i].size()};
    }
    return vectors;
}

}  // namespace

Store::Store(int fd, std::uint64_t entries, std::uint64_t limit_bytes, Space space)
    : fd_(fd), file_(fd), entries_(entries), limit_(limit_bytes), space_(space), map_(file_, entries, limit_bytes) {}

Store::~Store() {
    const StoreLock::AmongThreads held;  // closing any descriptor of a file releases the process's locks on it
    ::close(fd_);
}

std::uint64_t Store::used_bytes() const {
    if (space_ == Space::grows) return file_.next().value_or(cache_data_at(entries_));
    return map_.overhead() + file_.next().value_or(0);
}

std::uint64_t Store::room_bytes() const {
    return space_ == Space::reused ? map_.room() : limit_ - std::min(limit_, cache_data_at(entries_));
}

void Store::resume() {
    int full = kFull;
    stopped_.compare_exchange_strong(full, 0, std::memory_order_relaxed);
}

Store::Counts Store::counts() const {
    return {hits_.load(), misses_.load(), admitted_.load(), damaged_.load(), hit_bytes_.load(), admitted_bytes_.load()};
}

std::optional<Store::Item> Store::find(std::uint64_t index) {
    std::optional<Item> item = peek(index);
    if (!item) add(misses_, 1);
    return item;
}

std::optional<Store::Item> Store::peek(std::uint64_t index) {
    if (index >= entries_) return std::nullopt;
    const std::optional<CacheEntry> entry = intact(index);
    if (!entry) {
        mend(index);
        return std::nullopt;
    }
    if (entry->state != CacheState::kept) return std::nullopt;
    return Item{entry->offset, entry->bytes, entry->width, entry->height, entry->data_check, entry->generation};
}

std::optional<CacheEntry> Store::intact(std::uint64_t index) const {
    for (int look = 0; look < kLooks; ++look) {
        if (look > 0) std::this_thread::yield();
        const std::optional<CacheEntry> entry = file_.entry(index);
        if (!entry) continue;
        if (entry->state == CacheState::empty && entry->check == 0 && entry->offset == 0) return entry;
        const bool whole = entry->check == check_of(index, *entry) && entry->state <= CacheState::dropped;
        if (!whole || entry->offset < cache_data_at(entries_)) continue;
        if (space_ == Space::reused && entry->state == CacheState::kept && entry->bytes > 0 &&
            !map_.is_place(entry->offset, entry->bytes)) {
            continue;
        }
        if (entry->state == CacheState::kept && entry->bytes > 0 &&
            (entry->offset > std::numeric_limits<std::uint64_t>::max() / 2 ||
             entry->offset + entry->bytes > file_.size())) {
            continue;
        }
        return entry;
    }
    return std::nullopt;
}

bool Store::read(std::uint64_t index, const Item& item, std::span<const Part> parts) {
    const std::span<const Part> all = parts.first(std::min(parts.size(), kMostParts));
    auto vectors = vectors_of<Part>(all);
    const bool fits = bytes_of<Part>(all) == item.bytes;
    const bool is_whole = fits && file_.read(item.offset, std::span(vectors).first(all.size())) &&
                          check_of_parts<Part>(all) == item.data_check;
    if (space_ == Space::reused && !is_still(index, item)) {
        add(misses_, 1);  // evicted meanwhile: the bytes may be another entry's, so nothing is corrupt
        return false;
    }
    if (is_whole) {
        add(hits_, 1);
        add(hit_bytes_, item.bytes);
        return true;
    }
    reject(index, item);
    return false;
}

// An entry is dropped before its space is freed: if it is unchanged after a read of its data, the data was not
// overwritten meanwhile. The generation distinguishes an entry that was dropped and stored again at the same place.
bool Store::is_still(std::uint64_t index, const Item& item) const {
    const std::optional<CacheEntry> now = intact(index);
    return now && now->state == CacheState::kept && now->offset == item.offset && now->generation == item.generation;
}

void Store::reject(std::uint64_t index, const Item& item) {
    add(misses_, 1);
    add(damaged_, 1);
    if (space_ == Space::reused) {
        const StoreLock lock(fd_);
        if (lock.error() != 0 || !is_still(index, item)) return;
        if (const auto now = intact(index)) free_entry(index, *now);
        return;
    }
    CacheEntry entry{};
    entry.offset = item.offset;
    entry.bytes = item.bytes;
    entry.state = CacheState::dropped;
    entry.check = check_of(index, entry);
    drop(index, entry);
}

// Clears an unreadable entry.
void Store::mend(std::uint64_t index) {
    if (space_ == Space::reused) {
        const StoreLock lock(fd_);
        if (lock.error() != 0 || intact(index)) return;  // another process has written it meanwhile
        add(damaged_, 1);
        return drop(index, {});
    }
    add(damaged_, 1);
    drop(index, {});
}

std::uint64_t Store::free_entry(std::uint64_t index, const CacheEntry& entry) {
    CacheEntry empty{};
    empty.offset = cache_data_at(entries_);
    empty.state = CacheState::dropped;
    empty.generation = entry.generation + 1;
    empty.check = check_of(index, empty);
    if (file_.set_entry(index, empty) != 0) return 0;
    if (const int error = map_.give_back(entry.offset, entry.bytes)) stop(error);
    return SpaceMap::taken_by(entry.bytes);
}

std::uint64_t Store::evict(std::span<const std::int64_t> indices) {
    constexpr std::size_t kAtOnce = 64;  // so that others can take the lock in between
    std::uint64_t freed = 0;
    for (; !indices.empty() && space_ == Space::reused; indices = indices.subspan(std::min(kAtOnce, indices.size()))) {
        const StoreLock lock(fd_);
        if (lock.error() != 0) break;
        for (const std::int64_t index : indices.first(std::min(kAtOnce, indices.size()))) {
            const auto now = intact(static_cast<std::uint64_t>(index));
            if (now && now->state == CacheState::kept) freed += free_entry(static_cast<std::uint64_t>(index), *now);
        }
    }
    return freed;
}

std::vector<std::uint32_t> Store::taken(std::uint64_t first, std::uint64_t count) const {
    std::vector<std::uint32_t> taken(count);
    file_.each_entry(first, first + count, [&](std::uint64_t index, const CacheEntry& entry) {
        if (entry.state != CacheState::kept) return;
        taken[index - first] = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(SpaceMap::taken_by(entry.bytes), std::numeric_limits<std::uint32_t>::max()));
    });
    return taken;
}

void Store::recover() {
    if (space_ != Space::reused || !file_.is_alone()) return;
    {
        const StoreLock lock(fd_);
        const int error = lock.error() != 0 ? lock.error() : map_.rebuild();
        if (error != 0) stop(error);
    }
    file_.join();
}

// If the write fails, the old entry stays and will be detected again.
void Store::drop(std::uint64_t index, const CacheEntry& entry) { (void)file_.set_entry(index, entry); }

bool Store::put(std::uint64_t index, std::span<const ConstPart> parts, std::uint32_t width, std::uint32_t height) {
    const std::uint64_t bytes = bytes_of<ConstPart>(parts);
    if (index >= entries_ || stopped() > 0 || parts.size() > kMostParts ||
        bytes > std::numeric_limits<std::uint32_t>::max())
        return false;
    const std::optional<CacheEntry> now = intact(index);
    if (now && now->state == CacheState::kept) return false;
    const std::optional<std::uint64_t> offset = place_for(now.value_or(CacheEntry{}), bytes);
    if (!offset) return false;
    auto vectors = vectors_of<ConstPart>(parts);
    CacheEntry entry{};
    entry.offset = *offset;
    entry.bytes = static_cast<std::uint32_t>(bytes);
    entry.state = CacheState::kept;
    entry.width = width;
    entry.height = height;
    entry.data_check = check_of_parts<ConstPart>(parts);
    entry.check = check_of(index, entry);
    const int unwritten = file_.write(*offset, std::span(vectors).first(parts.size()));
    const int error = publish(index, entry, unwritten);
    if (error != 0) {
        if (error != kTaken) stop(error);
        return false;
    }
    add(admitted_, 1);
    add(admitted_bytes_, static_cast<std::int64_t>(bytes));
    return true;
}

// Writes the entry of data that is already written, unless that write failed with `error`. With space reuse, it never
// overwrites an existing entry, and frees the allocation if it does not write. Returns 0, kTaken or errno.
int Store::publish(std::uint64_t index, CacheEntry& entry, int error) {
    if (space_ == Space::grows) return error != 0 ? error : file_.set_entry(index, entry);
    const StoreLock lock(fd_);
    const auto now = intact(index);
    if (error == 0) error = lock.error();
    if (error == 0 && now && now->state == CacheState::kept) error = kTaken;
    if (error == 0) {
        entry.generation = now ? now->generation + 1 : 0;
        entry.check = check_of(index, entry);
        error = file_.set_entry(index, entry);
    }
    if (error != 0) (void)map_.give_back(entry.offset, entry.bytes);
    return error;
}

// A dropped entry is rewritten in place. Concurrent writers write the same bytes.
std::optional<std::uint64_t> Store::place_for(const CacheEntry& now, std::uint64_t bytes) {
    if (space_ == Space::grows && now.state == CacheState::dropped && bytes <= now.bytes &&
        now.offset <= limit_ - std::min(limit_, bytes)) {
        return now.offset;
    }
    return stopped() != 0 ? std::nullopt : allocate(bytes);
}

std::optional<std::uint64_t> Store::allocate(std::uint64_t bytes) {
    const StoreLock lock(fd_);
    if (lock.error() != 0) {
        stop(lock.error());
        return std::nullopt;
    }
    if (space_ == Space::grows) return append(bytes);
    if (bytes == 0) return cache_data_at(entries_);
    if (SpaceMap::taken_by(bytes) > map_.largest()) return std::nullopt;  // evictions cannot make room for it
    const SpaceMap::Taken taken = map_.take(bytes);
    if (!taken.offset) stop(taken.error != 0 ? taken.error : kFull);
    return taken.offset;
}

std::optional<std::uint64_t> Store::append(std::uint64_t bytes) {
    const std::uint64_t first = cache_data_at(entries_);
    std::uint64_t next = file_.next().value_or(0);
    if (next < first) next = file_.find_next(entries_);
    if (next > limit_ || limit_ - next < bytes) {
        stop(kFull);
        return std::nullopt;
    }
    if (const int error = file_.set_next(next + bytes)) {
        stop(error);
        return std::nullopt;
    }
    return next;
}

}  // namespace headrace
