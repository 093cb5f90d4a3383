// Memory of batches, used again once nobody holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace headrace {

// Blocks whose pages are already there: a new 150 MB batch would cost 37,000 page faults. Thread-safe. In a forked
// child it does nothing: another thread may have held its mutex at the fork.
class BlockPool {
public:
    // Keeps at most `most_idle` blocks that nobody uses.
    explicit BlockPool(std::size_t most_idle);
    ~BlockPool();
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    // At least `bytes`, page aligned, contents undefined. Throws std::bad_alloc, and std::logic_error in a forked
    // child.
    std::uint8_t* acquire(std::size_t bytes);
    void release(std::uint8_t* block);

    struct Usage {
        std::size_t in_use, idle, bytes, made;  // bytes: of both; made: blocks ever allocated
    };
    Usage usage() const;

private:
    struct Block {
        std::uint8_t* at;
        std::size_t bytes;
    };
    const int owner_;  // process
    mutable std::mutex mutex_;
    std::size_t most_idle_, made_ = 0;
    std::vector<Block> idle_, used_;
};

}  // namespace headrace
