// Checksums of a file's bytes, one a block: what is wrong in it is noticed at the first look at that block, and what
// nobody looks at costs nothing. A process checks each block once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace headrace {

// A name read at random costs one block once; a file of 1 GB, 256 KB of checksums.
constexpr std::int64_t checked_block_bytes = 1 << 14;

// CRC-32 (that of zlib, as a PNG and a zip have it) of each block of the bytes added; the last may be shorter.
class BlockSums {
public:
    void add(std::span<const std::uint8_t> bytes);
    // The checksums so far, the unfinished block's included.
    std::vector<std::uint32_t> sums() const;

private:
    std::vector<std::uint32_t> whole_;
    std::uint32_t sum_ = 0;
    std::int64_t filled_ = 0;
};

// Of the bytes [begin, end) of a file. Any number of threads may ask at once.
class BlockChecks {
public:
    // Throws Fault(corrupt) unless there are as many checksums as blocks.
    BlockChecks(std::int64_t begin, std::int64_t end, std::vector<std::uint32_t> sums);

    // Looks at the blocks that hold bytes of [from, to), as far as nobody did. Throws Fault: corrupt (they do not fit,
    // or lie outside), changed (the file is shorter than it was); std::system_error (reading failed).
    void check(int fd, std::int64_t from, std::int64_t to) const;
    // The same for some of the `count` rows of `row_bytes` bytes that begin at `at`; other numbers are passed over.
    void check_rows(int fd, std::int64_t at, std::int64_t row_bytes, std::int64_t count,
                    std::span<const std::int64_t> rows) const;

private:
    std::size_t block_of(std::int64_t at) const {
        return static_cast<std::size_t>((at - begin_) / checked_block_bytes);
    }
    void check_blocks(int fd, std::size_t first, std::size_t stop) const;

    std::int64_t begin_, end_;
    std::vector<std::uint32_t> sums_;
    std::unique_ptr<std::atomic<bool>[]> right_;
};

// Fills `count` bytes from the file's byte `at` on. Throws std::system_error, and Fault(changed) where it ends early.
void read_all(int fd, void* to, std::size_t count, std::int64_t at);

}  // namespace headrace
