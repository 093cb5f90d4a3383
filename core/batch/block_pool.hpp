// Pool of batch memory, reused once a batch is no longer referenced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace headrace {

// Pool of blocks with resident pages: a new 150 MB batch would cost 37,000 page faults. Thread-safe. In a forked child
// it does nothing: another thread may have held its mutex at the fork.
class BlockPool {
public:
    // Retains at most `most_idle` unused blocks. With an open anonymous file (memfd), which no one else may resize,
    // blocks are consecutive in it, and other processes map them by offset.
    explicit BlockPool(std::size_t most_idle, int file = -1);
    ~BlockPool();
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    // Returns at least `bytes` bytes; a reused block has at most twice as many, so that batches of changing shapes
    // share blocks. Page aligned, undefined contents. Throws std::bad_alloc, std::system_error if the file cannot grow,
    // and std::logic_error in a forked child.
    std::uint8_t* acquire(std::size_t bytes);
    void release(std::uint8_t* block);

    // File offset of a block in use. Throws std::out_of_range for any other address.
    std::size_t offset(const std::uint8_t* block) const;
    // Sets the maximum number of idle blocks: the others return their memory to the system, including file pages.
    void set_most_idle(std::size_t most_idle);
    // Retains no idle blocks from now on.
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
