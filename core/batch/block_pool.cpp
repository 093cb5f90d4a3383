#include "batch/block_pool.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

namespace headrace {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::uint8_t* map(std::size_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    if (bytes >= kHugePage) ::madvise(at, bytes, MADV_HUGEPAGE);  // a hint: refused, it costs page faults only
    return static_cast<std::uint8_t*>(at);
}

}  // namespace

BlockPool::BlockPool(std::size_t most_idle) : owner_(::getpid()), most_idle_(most_idle) {}

BlockPool::~BlockPool() {
    for (const Block& block : idle_) ::munmap(block.at, block.bytes);
}

std::uint8_t* BlockPool::acquire(std::size_t bytes) {
    if (::getpid() != owner_) throw std::logic_error("a batch pool is used in the process that made it");
    const std::size_t page = 4096;
    bytes = std::max(page, (bytes + page - 1) / page * page);
    std::lock_guard lock(mutex_);
    auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const Block& block) { return block.bytes == bytes; });
    if (fits == idle_.end()) {
        used_.push_back({map(bytes), bytes});
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
    if (idle_.size() <= most_idle_) return;
    ::munmap(idle_.front().at, idle_.front().bytes);  // the oldest: its size may be out of use
    idle_.erase(idle_.begin());
}

BlockPool::Usage BlockPool::usage() const {
    std::lock_guard lock(mutex_);
    Usage usage{used_.size(), idle_.size(), 0, made_};
    for (const Block& block : idle_) usage.bytes += block.bytes;
    for (const Block& block : used_) usage.bytes += block.bytes;
    return usage;
}

}  // namespace headrace
