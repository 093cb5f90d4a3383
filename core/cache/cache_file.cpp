#include "cache/cache_file.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headrace {

namespace {

constexpr char kMagic[8] = {'h', 'r', '-', 'c', 'a', 'c', 'h', 'e'};

constexpr int kUserLooks = 500;
constexpr std::chrono::milliseconds kUserPause{10};

int set_user_lock(int fd, short kind) {
    struct flock lock{};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = kCacheUsersAt;
    lock.l_len = 1;
    return ::fcntl(fd, F_OFD_SETLK, &lock);
}

// Returns the rest of `parts` after `done` bytes.
std::span<iovec> rest_of(std::span<iovec> parts, std::size_t done) {
    while (!parts.empty() && done >= parts.front().iov_len) {
        done -= parts.front().iov_len;
        parts = parts.subspan(1);
    }
    if (!parts.empty()) {
        parts.front().iov_base = static_cast<std::uint8_t*>(parts.front().iov_base) + done;
        parts.front().iov_len -= done;
    }
    return parts;
}

}  // namespace

int CacheFile::make(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp,
                    std::uint32_t version) const {
    CacheHeader header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = version;
    header.entries = entries;
    header.key = key;
    header.stamp = stamp;
    header.check = check_of(header);
    const std::uint64_t data_at = cache_data_at(entries);
    if (::ftruncate(fd_, static_cast<off_t>(data_at)) != 0) return errno;
    const int error = set_next(version == kCacheVersion ? data_at : 0);
    return error != 0 ? error : write_at(0, &header, sizeof header);
}

CacheKind CacheFile::kind(std::uint64_t entries, const CacheDigest& key, const CacheDigest& stamp,
                          std::uint32_t version) const {
    CacheHeader header;
    if (!read_at(0, &header, sizeof header)) return CacheKind::damaged;
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return CacheKind::damaged;
    if (header.version != version) return CacheKind::other_version;  // the other fields may have moved
    if (header.check != check_of(header)) return CacheKind::damaged;
    if (header.key != key || header.entries != entries) return CacheKind::other_key;
    if (header.stamp != stamp) return CacheKind::other_stamp;
    return CacheKind::ours;
}

std::optional<std::uint64_t> CacheFile::next() const {
    const std::optional<CacheTail> found = tail();
    return found ? std::optional(found->next) : std::nullopt;
}

std::optional<CacheTail> CacheFile::tail() const {
    CacheTail tail;
    if (!read_at(kCacheTailAt, &tail, sizeof tail) || tail.check != check_of(tail)) return std::nullopt;
    return tail;
}

int CacheFile::set_next(std::uint64_t next, std::uint32_t group) const {
    CacheTail tail{};
    tail.next = next;
    tail.group = group;
    tail.check = check_of(tail);
    return write_at(kCacheTailAt, &tail, sizeof tail);
}

std::uint64_t CacheFile::find_next(std::uint64_t entries) const {
    std::uint64_t next = cache_data_at(entries);
    each_entry(0, entries,
               [&](std::uint64_t, const CacheEntry& entry) { next = std::max(next, entry.offset + entry.bytes); });
    return next;
}

std::optional<CacheEntry> CacheFile::entry(std::uint64_t index) const {
    CacheEntry entry;
    if (!read_at(kCacheIndexAt + index * sizeof entry, &entry, sizeof entry)) return std::nullopt;
    return entry;
}

int CacheFile::set_entry(std::uint64_t index, const CacheEntry& entry) const {
    return write_at(kCacheIndexAt + index * sizeof entry, &entry, sizeof entry);
}

// Uses locks of the open file description: the kernel releases them with the last descriptor, even after a crash. On a
// file system without such locks, returns false.
bool CacheFile::is_alone() const {
    for (int look = 0; look < kUserLooks; ++look) {
        if (set_user_lock(fd_, F_WRLCK) == 0) return true;
        if (set_user_lock(fd_, F_RDLCK) == 0 || (errno != EAGAIN && errno != EACCES)) return false;
        std::this_thread::sleep_for(kUserPause);  // the sole user rebuilds its data, then joins
    }
    return false;
}

void CacheFile::join() const { (void)set_user_lock(fd_, F_RDLCK); }

std::uint64_t CacheFile::size() const {
    struct stat status;
    return ::fstat(fd_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

int CacheFile::cut(std::uint64_t bytes) const { return ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : errno; }

bool CacheFile::read(std::uint64_t offset, std::span<iovec> parts) const {
    for (parts = rest_of(parts, 0); !parts.empty();) {
        const ssize_t got = ::preadv(fd_, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        offset += static_cast<std::uint64_t>(got);
        parts = rest_of(parts, static_cast<std::size_t>(got));
    }
    return true;
}

int CacheFile::write(std::uint64_t offset, std::span<iovec> parts) const {
    for (parts = rest_of(parts, 0); !parts.empty();) {
        const ssize_t put = ::pwritev(fd_, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        offset += static_cast<std::uint64_t>(put);
        parts = rest_of(parts, static_cast<std::size_t>(put));
    }
    return 0;
}

bool CacheFile::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
    std::array<iovec, 1> part{{{to, bytes}}};
    return read(offset, part);
}

int CacheFile::write_at(std::uint64_t offset, const void* from, std::size_t bytes) const {
    std::array<iovec, 1> part{{{const_cast<void*>(from), bytes}}};
    return write(offset, part);
}

}  // namespace headrace
