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

    // At least `bytes`, page aligned, contents undefined. Throws std::bad_alloc, std::system_error where the file
    // cannot grow, and std::logic_error in a forked child.
    std::uint8_t* acquire(std::size_t bytes);
    void release(std::uint8_t* block);

    // Where a block that is in use begins in the file. Throws std::out_of_range for any other address.
    std::size_t offset(const std::uint8_t* block) const;
    // Keeps no idle block from now on: each gives its memory back to the system, in the file too.
    void retire();

    // A process is forked that may look at what is in use now, in the file's own memory: such blocks are neither used
    // again nor freed before `take_back` is told of this fork or a later one. Forks are numbered from 1 up.
    void set_aside(std::uint64_t fork);
    void take_back(std::uint64_t fork);

    struct Usage {
        std::size_t in_use, idle, bytes, made;  // bytes: of both; made: blocks ever allocated
    };
    Usage usage() const;

private:
    struct Block {
        std::uint8_t* at;
        std::size_t bytes, offset;
        std::uint64_t fork = 0;  // the latest that may look at it
    };
    Block make(std::size_t bytes);
    void free(const Block& block) const;
    void keep_idle(const Block& block);

    const int owner_;  // process
    const int file_;   // borrowed; -1: private memory
    std::size_t file_bytes_ = 0;
    mutable std::mutex mutex_;
    std::size_t most_idle_, made_ = 0;
    std::uint64_t taken_back_ = 0;
    bool retired_ = false;
    std::vector<Block> idle_, used_, aside_;
};

}  // namespace headrace
