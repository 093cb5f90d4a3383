#include "tar/window.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/fault.hpp"
#include "tar/header.hpp"

namespace headrace {
FileWindow::FileWindow(const std::string& path) : path_(path), bytes_(max_window_bytes) {
    // Without O_NONBLOCK, opening a FIFO would wait for a writer.
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) throw Fault(Code::io, path + ": could not be opened: " + std::strerror(errno));
    struct stat info{};
    const bool known = fstat(fd_, &info) == 0;
    if (known && S_ISREG(info.st_mode)) {
        size_ = info.st_size;
        return;
    }
    close(fd_);
    throw Fault(Code::io, path + ": expected a regular file");
}

FileWindow::~FileWindow() { close(fd_); }

const std::uint8_t* FileWindow::block(std::int64_t offset) {
    if (!holds(offset, tar_block_bytes)) {
        const bool close = blocks_ > 0 && offset > start_ && offset - start_ <= blocks_ * close_bytes;
        window_ = close ? std::min(2 * window_, max_window_bytes) : min_window_bytes;
        start_ = offset;
        held_ = read_into(bytes_.data(), offset, window_);
        blocks_ = 0;
    }
    ++blocks_;
    return holds(offset, tar_block_bytes) ? bytes_.data() + (offset - start_) : nullptr;
}

std::string FileWindow::read(std::int64_t offset, std::int64_t length) const {
    if (holds(offset, length))
        return {reinterpret_cast<const char*>(bytes_.data()) + (offset - start_), static_cast<std::size_t>(length)};
    std::string text(length, '\0');
    text.resize(read_into(reinterpret_cast<std::uint8_t*>(text.data()), offset, length));
    return text;
}

std::int64_t FileWindow::read_into(std::uint8_t* to, std::int64_t offset, std::int64_t length) const {
    std::int64_t done = 0;
    while (done < length) {
        const ssize_t got = pread(fd_, to + done, length - done, offset + done);
        if (got == 0) break;
        if (got > 0) done += got;
        if (got < 0 && errno != EINTR)
            throw Fault(Code::io, path_ + ": could not be read at byte " + std::to_string(offset + done) + ": " +
                                      std::strerror(errno));
    }
    return done;
}

}  // namespace headrace
