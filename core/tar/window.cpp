#include "tar/window.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/fault.hpp"
#include "tar/header.hpp"

namespace headrace {
namespace {

constexpr std::int64_t window_growth = 4;
constexpr std::int64_t blocks_remembered = 16;  // recent blocks only: large members may be anywhere among small ones

std::int64_t read_file(int fd, const std::string& path, std::uint8_t* to, std::int64_t offset, std::int64_t length) {
    std::int64_t done = 0;
    while (done < length) {
        const ssize_t got = pread(fd, to + done, length - done, offset + done);
        if (got == 0) break;
        if (got > 0) done += got;
        if (got < 0 && errno != EINTR)
            throw Fault(Code::io, path + ": could not be read at byte " + std::to_string(offset + done) + ": " +
                                      std::strerror(errno));
    }
    return done;
}

}  // namespace

FileWindow::FileWindow(const std::string& path) : growth_([] { return WindowGrowth{}; }) {
    // Without O_NONBLOCK, opening a FIFO would wait for a writer.
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) throw Fault(Code::io, path + ": could not be opened: " + std::strerror(errno));
    struct stat info{};
    const bool known = fstat(fd_, &info) == 0;
    if (known && S_ISREG(info.st_mode)) {
        size_ = info.st_size;
        reader_ = [fd = fd_, path](std::uint8_t* to, std::int64_t offset, std::int64_t length) {
            return read_file(fd, path, to, offset, length);
        };
        return;
    }
    close(fd_);
    throw Fault(Code::io, path + ": expected a regular file");
}

FileWindow::FileWindow(std::int64_t size, RangeReader reader, GrowthSource growth)
    : reader_(std::move(reader)), growth_(std::move(growth)), size_(size) {}

FileWindow::~FileWindow() {
    if (fd_ >= 0) close(fd_);
}

const std::uint8_t* FileWindow::block(std::int64_t offset) {
    if (!holds(offset, tar_block_bytes)) {
        const WindowGrowth growth = growth_();
        const bool forward = needed_ > 0 && offset > start_;
        if (forward) passed(std::min(offset - start_, 4 * needed_ * growth.close_bytes), needed_);
        const bool close = forward && distance_ <= growth.close_bytes;
        window_ = close ? std::min(window_growth * window_, growth.max_bytes) : growth.min_bytes;
        const std::int64_t wanted = std::min(window_, size_ - offset);
        if (wanted < tar_block_bytes) return nullptr;
        if (static_cast<std::int64_t>(bytes_.size()) < wanted) bytes_.resize(wanted);
        start_ = offset;
        held_ = reader_(bytes_.data(), offset, wanted);
        least_ = growth.min_bytes;
        needed_ = reach_ = 0;
    }
    if (offset + tar_block_bytes > reach_) {
        ++needed_;
        reach_ = offset + least_;
    }
    return holds(offset, tar_block_bytes) ? bytes_.data() + (offset - start_) : nullptr;
}

void FileWindow::passed(std::int64_t bytes, std::int64_t blocks) {
    blocks_ = std::min(blocks_ + blocks, blocks_remembered);
    distance_ += (bytes - blocks * distance_) / std::max(blocks_, blocks);
}

std::string FileWindow::read(std::int64_t offset, std::int64_t length) const {
    length = std::max<std::int64_t>(0, std::min(length, size_ - offset));
    if (holds(offset, length))
        return {reinterpret_cast<const char*>(bytes_.data()) + (offset - start_), static_cast<std::size_t>(length)};
    std::string text(length, '\0');
    text.resize(reader_(reinterpret_cast<std::uint8_t*>(text.data()), offset, length));
    return text;
}

}  // namespace headrace
