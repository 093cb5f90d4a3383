// A read-only file seen through a small window: one pread serves several neighbouring tar headers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headrace {

// The window follows what it sees: it grows while the last blocks lay close to each other in the mean, and is as small
// as can be otherwise. So a tar of small members is read in large pieces; of one with large members, only headers are,
// each with what belongs to it.
struct WindowGrowth {
    std::int64_t min_bytes = 1536;  // a PAX header, its records and the member's header; or a header, a label and the
                                    // next header
    std::int64_t max_bytes = 1 << 18;
    std::int64_t close_bytes = 8192;  // read rather than left out by one more read of min_bytes
};

// Asked ahead of each read: how windows grow may depend on what reads have cost so far.
using GrowthSource = std::function<WindowGrowth()>;

// Reads up to length bytes at offset; fewer only at the end. Throws Fault(io), or what the caller's function throws.
using RangeReader = std::function<std::int64_t(std::uint8_t* to, std::int64_t offset, std::int64_t length)>;

class FileWindow {
public:
    // Opens path. Throws Fault(io) if that fails or it is not a regular file.
    explicit FileWindow(const std::string& path);
    // Sees what `reader` reads, of `size` bytes in all, such as an object in a store.
    FileWindow(std::int64_t size, RangeReader reader, GrowthSource growth);
    ~FileWindow();
    FileWindow(const FileWindow&) = delete;
    FileWindow& operator=(const FileWindow&) = delete;

    std::int64_t size() const { return size_; }

    // 512 bytes at offset, valid until the next call; null if fewer lie there.
    const std::uint8_t* block(std::int64_t offset);

    // Up to length bytes at offset; fewer only at the end of the file.
    std::string read(std::int64_t offset, std::int64_t length) const;

private:
    // Takes in that so many blocks lay in so many bytes.
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
    std::int64_t needed_ = 0;    // windows of min_bytes that would have held the blocks asked for
    std::int64_t reach_ = 0;     // end of the last of these
    std::int64_t blocks_ = 0;    // blocks that distance_ is of
    std::int64_t distance_ = 0;  // from one to the next, in the mean of the last ones
};

}  // namespace headrace
