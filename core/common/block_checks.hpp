// Checksums of a file, one per block: corruption is detected on first access to a block, and unread blocks cost
// nothing. A process checks each block once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace headrace {

// A random read of a name checks one block once; a file of 1 GB has 256 KB of checksums.
constexpr std::int64_t checked_block_bytes = 1 << 14;

// CRC-32 (zlib's, as in PNG and zip) of each block of the added bytes; the last block may be shorter.
class BlockSums {
public:
    void add(std::span<const std::uint8_t> bytes);
    // The checksums so far, including the unfinished block's.
    std::vector<std::uint32_t> sums() const;

private:
    std::vector<std::uint32_t> whole_;
    std::uint32_t sum_ = 0;
    std::int64_t filled_ = 0;
};

// Checks of the bytes [begin, end) of a file. Safe for concurrent use.
class BlockChecks {
public:
    // Throws Fault(corrupt) unless there are as many checksums as blocks.
    BlockChecks(std::int64_t begin, std::int64_t end, std::vector<std::uint32_t> sums);

    // Checks the blocks that overlap [from, to), unless already checked. Throws Fault: corrupt (a checksum differs, or
    // the range is out of bounds), changed (the file became shorter); std::system_error (a read failed).
    void check(int fd, std::int64_t from, std::int64_t to) const;
    // The same for some of the `count` rows of `row_bytes` bytes that begin at `at`; ignores row numbers out of range.
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

// Reads `count` bytes from file offset `at`. Throws std::system_error, and Fault(changed) if the file ends early.
void read_all(int fd, void* to, std::size_t count, std::int64_t at);

}  // namespace headrace
