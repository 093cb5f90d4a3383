#include "cache/store.hpp"

#include <array>
#include <limits>
#include <thread>

#include <libdeflate.h>
#include <unistd.h>

namespace headrace {

namespace {

// An entry may be read while another process writes it, and is then neither the old nor the new one.
constexpr int kLooks = 3;

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

Store::Store(int fd, std::uint64_t entries, std::uint64_t limit_bytes)
    : fd_(fd), file_(fd), entries_(entries), limit_(limit_bytes) {}

Store::~Store() {
    const StoreLock::AmongThreads held;  // to close any descriptor of a file lets go of the process's locks of it
    ::close(fd_);
}

std::uint64_t Store::used_bytes() const { return file_.next().value_or(cache_data_at(entries_)); }

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
        add(damaged_, 1);
        drop(index, {});
        return std::nullopt;
    }
    if (entry->state != CacheState::kept) return std::nullopt;
    return Item{entry->offset, entry->bytes, entry->width, entry->height, entry->data_check};
}

std::optional<CacheEntry> Store::intact(std::uint64_t index) const {
    for (int look = 0; look < kLooks; ++look) {
        if (look > 0) std::this_thread::yield();
        const std::optional<CacheEntry> entry = file_.entry(index);
        if (!entry) continue;
        if (entry->state == CacheState::empty && entry->check == 0 && entry->offset == 0) return entry;
        const bool whole = entry->check == check_of(index, *entry) && entry->state <= CacheState::dropped;
        if (!whole || entry->offset < cache_data_at(entries_)) continue;
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
    if (fits && file_.read(item.offset, std::span(vectors).first(all.size())) &&
        check_of_parts<Part>(all) == item.data_check) {
        add(hits_, 1);
        add(hit_bytes_, item.bytes);
        return true;
    }
    reject(index, item);
    return false;
}

void Store::reject(std::uint64_t index, const Item& item) {
    add(misses_, 1);
    add(damaged_, 1);
    CacheEntry entry{};
    entry.offset = item.offset;
    entry.bytes = item.bytes;
    entry.state = CacheState::dropped;
    entry.check = check_of(index, entry);
    drop(index, entry);
}

// A failure to write it down leaves what was there, to be found out again.
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
    int error = file_.write(*offset, std::span(vectors).first(parts.size()));
    if (error == 0) error = file_.set_entry(index, entry);
    if (error != 0) {
        stop(error);
        return false;
    }
    add(admitted_, 1);
    add(admitted_bytes_, static_cast<std::int64_t>(bytes));
    return true;
}

// What was dropped is written again where it was. Two that do so at a time write the same bytes.
std::optional<std::uint64_t> Store::place_for(const CacheEntry& now, std::uint64_t bytes) {
    if (now.state == CacheState::dropped && bytes <= now.bytes && now.offset <= limit_ - std::min(limit_, bytes)) {
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
