// A read-only file seen through a small window: one pread serves several neighbouring tar headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// The window follows what it sees: as long as each block lies in it or right behind it, it doubles; after a leap it is
// as small as can be. So a tar of small members is read in large pieces, and of one with large members, only what is
// asked for and the next header where it lies near.
constexpr std::int64_t min_window_bytes = 1536;  // a header, a label of up to a block and the next header
constexpr std::int64_t max_window_bytes = 1 << 18;

class FileWindow {
public:
    // Opens path. Throws Fault(io) if that fails or it is not a regular file.
    explicit FileWindow(const std::string& path);
    ~FileWindow();
    FileWindow(const FileWindow&) = delete;
    FileWindow& operator=(const FileWindow&) = delete;

    std::int64_t size() const { return size_; }

    // 512 bytes at offset, valid until the next call; null if fewer lie there.
    const std::uint8_t* block(std::int64_t offset);

    // Up to length bytes at offset; fewer only at the end of the file.
    std::string read(std::int64_t offset, std::int64_t length) const;

private:
    std::int64_t read_into(std::uint8_t* to, std::int64_t offset, std::int64_t length) const;

    std::string path_;
    int fd_ = -1;
    std::int64_t size_ = 0;
    std::vector<std::uint8_t> bytes_;
    std::int64_t start_ = 0, held_ = 0;  // bytes_ holds the file's [start_, start_ + held_)
    std::int64_t window_ = min_window_bytes;
};

}  // namespace headrace
