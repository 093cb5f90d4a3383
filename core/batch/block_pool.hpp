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
    // Keeps at most `most_idle` blocks that nobody uses. Given an open file of no name (memfd), of which nobody else
    // changes the size, blocks lie one after the other in it, and other processes map them by their offset.
    explicit BlockPool(std::size_t most_idle, int file = -1);
    ~BlockPool();
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    // At least `bytes` and, if it was there before, at most twice as many: batches of changing shapes share blocks.
    // Page aligned, contents undefined. Throws std::bad_alloc, std::system_error where the file cannot grow, and
    // std::logic_error in a forked child.
    std::uint8_t* acquire(std::size_t bytes);
    void release(std::uint8_t* block);

    // Where a block that is in use begins in the file. Throws std::out_of_range for any other address.
    std::size_t offset(const std::uint8_t* block) const;
    // Keeps so many idle blocks from now on: the others give their memory back to the system, in the file too.
    void set_most_idle(std::size_t most_idle);
    // Keeps none from now on.
    void retire() { set_most_idle(0); }

    struct Usage {
        std::size_t in_use, idle, bytes, made;  // bytes: of both; made: blocks ever allocated
    };
    Usage usage() const;

private:
    struct Block {
        std::uint8_t* at;
        std::size_t bytes, offset;
    };
    Block make(std::size_t bytes);
    void free(const Block& block) const;
    void drop_idle_beyond(std::size_t most);

    const int owner_;  // process
    const int file_;   // borrowed; -1: private memory
    std::size_t file_bytes_ = 0;
    mutable std::mutex mutex_;
    std::size_t most_idle_, made_ = 0;
    std::vector<Block> idle_, used_;
};

}  // namespace headrace
