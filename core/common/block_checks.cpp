#include "common/block_checks.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <libdeflate.h>
#include <unistd.h>

#include "common/fault.hpp"

namespace headrace {
namespace {

constexpr std::size_t blocks_at_once = 16;  // one read of 256 KB, which fits in the CPU cache

}  // namespace

void BlockSums::add(std::span<const std::uint8_t> bytes) {
    while (!bytes.empty()) {
        const auto part = bytes.first(std::min(bytes.size(), static_cast<std::size_t>(checked_block_bytes - filled_)));
        sum_ = libdeflate_crc32(sum_, part.data(), part.size());
        filled_ += static_cast<std::int64_t>(part.size());
        bytes = bytes.subspan(part.size());
        if (filled_ < checked_block_bytes) continue;
        whole_.push_back(std::exchange(sum_, 0));
        filled_ = 0;
    }
}

std::vector<std::uint32_t> BlockSums::sums() const {
    std::vector<std::uint32_t> all = whole_;
    if (filled_ > 0) all.push_back(sum_);
    return all;
}

BlockChecks::BlockChecks(std::int64_t begin, std::int64_t end, std::vector<std::uint32_t> sums)
    : begin_(begin), end_(end), sums_(std::move(sums)) {
    const bool fits = begin >= 0 && begin <= end;
    const std::int64_t whole = fits ? (end - begin) / checked_block_bytes : 0;
    const std::size_t blocks = static_cast<std::size_t>(whole + (fits && (end - begin) % checked_block_bytes != 0));
    if (!fits || blocks != sums_.size()) {
        throw Fault(Code::corrupt,
                    "expected " + std::to_string(blocks) + " checksums, got " + std::to_string(sums_.size()));
    }
    right_ = std::make_unique<std::atomic<bool>[]>(blocks);
}

void BlockChecks::check(int fd, std::int64_t from, std::int64_t to) const {
    if (from < begin_ || to > end_) throw Fault(Code::corrupt, "bytes outside those that are checked are asked for");
    if (from >= to) return;
    std::size_t first = block_of(from);
    const std::size_t stop = block_of(to - 1) + 1;
    while (first < stop) {
        if (right_[first].load(std::memory_order_relaxed)) {
            ++first;
            continue;
        }
        std::size_t next = first + 1;
        while (next < std::min(stop, first + blocks_at_once) && !right_[next].load(std::memory_order_relaxed)) ++next;
        check_blocks(fd, first, next);
        first = next;
    }
}

void BlockChecks::check_rows(int fd, std::int64_t at, std::int64_t row_bytes, std::int64_t count,
                             std::span<const std::int64_t> rows) const {
    for (const std::int64_t row : rows) {
        if (row < 0 || row >= count) continue;
        const std::int64_t from = at + row * row_bytes;
        check(fd, from, from + row_bytes);
    }
}

void BlockChecks::check_blocks(int fd, std::size_t first, std::size_t stop) const {
    thread_local std::vector<std::uint8_t> bytes;
    const std::int64_t from = begin_ + static_cast<std::int64_t>(first) * checked_block_bytes;
    const std::int64_t to = std::min(end_, begin_ + static_cast<std::int64_t>(stop) * checked_block_bytes);
    bytes.resize(static_cast<std::size_t>(to - from));
    read_all(fd, bytes.data(), bytes.size(), from);
    for (std::size_t block = first; block < stop; ++block) {
        const std::size_t at = (block - first) * checked_block_bytes;
        const std::size_t size = std::min<std::size_t>(checked_block_bytes, bytes.size() - at);
        if (libdeflate_crc32(0, bytes.data() + at, size) != sums_[block]) {
            throw Fault(Code::corrupt, "the " + std::to_string(size) + " bytes from byte " +
                                           std::to_string(from + static_cast<std::int64_t>(at)) +
                                           " on do not fit their checksum");
        }
        right_[block].store(true, std::memory_order_relaxed);
    }
}

void read_all(int fd, void* to, std::size_t count, std::int64_t at) {
    auto* next = static_cast<std::uint8_t*>(to);
    while (count > 0) {
        const ssize_t got = ::pread(fd, next, count, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw std::system_error(errno, std::generic_category());
        if (got == 0) throw Fault(Code::changed, "the index ends early, at byte " + std::to_string(at));
        next += got;
        at += got;
        count -= static_cast<std::size_t>(got);
    }
}

}  // namespace headrace
