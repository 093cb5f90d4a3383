// Read-only file with a small window: one pread serves several neighbouring tar headers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headrace {

// The window is adaptive: it grows while recent blocks are close to each other on average, and is minimal otherwise. So
// a tar of small members is read in large pieces; from a tar of large members, only headers and their records are read.
struct WindowGrowth {
    std::int64_t min_bytes = 1536;  // a PAX header, its records and the member's header; or a header, a label and the
                                    // next header
    std::int64_t max_bytes = 1 << 18;
    std::int64_t close_bytes = 8192;  // gap that is cheaper to read than to skip by another read of min_bytes
};

// Called before each read: the growth may depend on the cost of earlier reads.
using GrowthSource = std::function<WindowGrowth()>;

// Reads up to length bytes at offset; fewer only at the end. Throws Fault(io), or the errors of the caller's function.
using RangeReader = std::function<std::int64_t(std::uint8_t* to, std::int64_t offset, std::int64_t length)>;

class FileWindow {
public:
    // Opens path. Throws Fault(io) if that fails or it is not a regular file.
    explicit FileWindow(const std::string& path);
    // Reads through `reader` from `size` bytes in total, such as an object in a store.
    FileWindow(std::int64_t size, RangeReader reader, GrowthSource growth);
    ~FileWindow();
    FileWindow(const FileWindow&) = delete;
    FileWindow& operator=(const FileWindow&) = delete;

    std::int64_t size() const { return size_; }

    // Returns 512 bytes at offset, valid until the next call; null past the last full block.
    const std::uint8_t* block(std::int64_t offset);

    // Returns up to length bytes at offset; fewer only at the end of the file.
    std::string read(std::int64_t offset, std::int64_t length) const;

private:
    // Updates the mean distance with `blocks` blocks in `bytes` bytes.
    void passed(std::int64_t bytes, std::int64_t blocks);
    bool holds(std::int64_t offset, std::int64_t length) const {
        return offset >= start_ && offset + length <= start_ + held_;
    }
    RangeReader reader_;
    GrowthSource growth_;
    int fd_ = -1;
    std::int64_t size_ = 0;
    std::vector<std::uint8_t> bytes_;
    std::int64_t start_ = 0, held_ = 0;  // bytes_ holds the file's [start_, start_ + held_)
    std::int64_t window_ = 0;
    std::int64_t least_ = 0;     // min_bytes of this window
    std::int64_t needed_ = 0;    // windows of min_bytes that the requested blocks would have needed
    std::int64_t reach_ = 0;     // end of the last of these windows
    std::int64_t blocks_ = 0;    // number of blocks in distance_
    std::int64_t distance_ = 0;  // mean distance between recent blocks
};

}  // namespace headrace
