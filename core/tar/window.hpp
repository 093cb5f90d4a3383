// A read-only file seen through a small window: one pread serves several neighbouring tar headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

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
};

}  // namespace headrace
