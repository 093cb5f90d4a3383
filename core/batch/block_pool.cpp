#include "batch/block_pool.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

#include <sys/mman.h>
#include <unistd.h>

namespace headrace {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::uint8_t* map(std::size_t bytes, int file, std::size_t offset) {
    const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, static_cast<off_t>(offset));
    if (at == MAP_FAILED) throw std::bad_alloc();
    if (bytes >= kHugePage) ::madvise(at, bytes, MADV_HUGEPAGE);  // a hint: a refusal only costs page faults
    return static_cast<std::uint8_t*>(at);
}

}  // namespace

BlockPool::BlockPool(std::size_t most_idle, int file) : owner_(::getpid()), file_(file), most_idle_(most_idle) {}

BlockPool::~BlockPool() {
    for (const Block& block : idle_) free(block);
}

BlockPool::Block BlockPool::make(std::size_t bytes) {
    if (file_ < 0) return {map(bytes, file_, 0), bytes, 0};
    // Offsets are never reused: a freed block becomes a hole, and a worker may still have it mapped.
    if (::ftruncate(file_, static_cast<off_t>(file_bytes_ + bytes)) != 0)
        throw std::system_error(errno, std::generic_category());
    Block block{map(bytes, file_, file_bytes_), bytes, file_bytes_};
    file_bytes_ += bytes;
    return block;
}

void BlockPool::free(const Block& block) const {
    // Unmapping alone would leave the pages in the file as long as any process maps any part of it. A forked child must
    // not free pages of the parent's file.
    if (file_ >= 0 && ::getpid() == owner_) ::madvise(block.at, block.bytes, MADV_REMOVE);
    ::munmap(block.at, block.bytes);
}

std::uint8_t* BlockPool::acquire(std::size_t bytes) {
    if (::getpid() != owner_) throw std::logic_error("a batch pool is used in the process that made it");
    const std::size_t page = 4096;
    bytes = std::max(page, (bytes + page - 1) / page * page);
    std::lock_guard lock(mutex_);
    auto fits = idle_.end();
    for (auto block = idle_.begin(); block != idle_.end(); ++block) {
        const bool suits = block->bytes >= bytes && block->bytes / 2 <= bytes;
        if (suits && (fits == idle_.end() || block->bytes < fits->bytes)) fits = block;
    }
    if (fits == idle_.end()) {
        used_.push_back(make(bytes));
        ++made_;
    } else {
        used_.push_back(*fits);
        idle_.erase(fits);
    }
    return used_.back().at;
}

void BlockPool::release(std::uint8_t* at) {
    if (::getpid() != owner_) return;
    std::lock_guard lock(mutex_);
    auto found = std::find_if(used_.begin(), used_.end(), [&](const Block& block) { return block.at == at; });
    if (found == used_.end()) return;
    idle_.push_back(*found);
    used_.erase(found);
    drop_idle_beyond(most_idle_);
}

void BlockPool::drop_idle_beyond(std::size_t most) {
    while (idle_.size() > most) {
        free(idle_.front());  // the oldest: its size may no longer be used
        idle_.erase(idle_.begin());
    }
}

std::size_t BlockPool::offset(const std::uint8_t* at) const {
    std::lock_guard lock(mutex_);
    auto found = std::find_if(used_.begin(), used_.end(), [&](const Block& block) { return block.at == at; });
    if (found == used_.end()) throw std::out_of_range("expected a block of this pool that is in use");
    return found->offset;
}

void BlockPool::set_most_idle(std::size_t most_idle) {
    if (::getpid() != owner_) return;
    std::lock_guard lock(mutex_);
    most_idle_ = most_idle;
    drop_idle_beyond(most_idle);
}

BlockPool::Usage BlockPool::usage() const {
    std::lock_guard lock(mutex_);
    Usage usage{used_.size(), idle_.size(), 0, made_};
    for (const Block& block : idle_) usage.bytes += block.bytes;
    for (const Block& block : used_) usage.bytes += block.bytes;
    return usage;
}

}  // namespace headrace
