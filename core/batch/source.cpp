#include "batch/source.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fault.hpp"
#include "names/inside.hpp"
#include "tar/header.hpp"

namespace headrace {

namespace {

constexpr std::size_t kTarBlock = 512;
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

std::string why(const char* what, const std::string& path) {
    return std::string(what) + " " + path + ": " + std::strerror(errno);
}

}  // namespace

Paths::Paths(std::string root, std::span<const std::uint8_t> names, std::span<const std::uint64_t> offsets,
             bool keep_open, bool inside)
    : root_(std::move(root)), names_(names), offsets_(offsets), keep_open_(keep_open), inside_(inside) {
    if (offsets.empty()) throw std::invalid_argument("expected at least one offset");
}

Paths::File::~File() { ::close(fd); }

std::string Paths::path(std::int64_t index) const {
    if (index < 0 || static_cast<std::size_t>(index) >= size()) {
        throw Fault(Code::changed, "the index names file " + std::to_string(index) + " of " + std::to_string(size()));
    }
    const std::uint64_t start = offsets_[index], stop = offsets_[index + 1];
    if (start > stop || stop > names_.size()) throw Fault(Code::changed, "the index of file names is damaged");
    const std::string name(reinterpret_cast<const char*>(names_.data()) + start, stop - start);
    if (name.empty()) throw Fault(Code::corrupt, "the sample has no such file");
    if (name.find('\0') != std::string::npos) throw Fault(Code::missing, "no file's name holds a NUL byte");
    if (inside_ && leads_out(name)) throw Fault(Code::outside, "the path " + name + " leads out of " + root_);
    return root_.empty() || name.front() == '/' ? name : root_ + "/" + name;
}

std::shared_ptr<const Paths::File> Paths::open_new(std::int64_t index) const {
    const std::string where = path(index);
    // O_NONBLOCK: a FIFO with an image's name must not block; it has no effect on regular files.
    const int fd = ::open(where.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) throw Fault(Code::io, why("cannot open", where));
    return std::make_shared<const File>(fd);
}

std::shared_ptr<const Paths::File> Paths::open(std::int64_t index) const {
    if (!keep_open_) return open_new(index);
    std::lock_guard lock(mutex_);
    if (auto found = open_.find(index); found != open_.end()) {
        recent_.splice(recent_.begin(), recent_, found->second.place);
        return found->second.file;
    }
    auto file = open_new(index);
    if (open_.size() == kOpenFiles) {
        open_.erase(recent_.back());
        recent_.pop_back();
    }
    recent_.push_front(index);
    open_.emplace(index, Entry{file, recent_.begin()});
    return file;
}

void Paths::close() {
    std::lock_guard lock(mutex_);
    open_.clear();
    recent_.clear();
}

void Reader::fill(int fd, std::size_t at, std::size_t count, std::int64_t offset, const std::string& path) {
    while (count > 0) {
        const ssize_t got = ::pread(fd, buffer_.data() + at, count, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Fault(Code::io, why("cannot read", path));
        if (got == 0) {
            throw Fault(Code::changed, path + " ends at byte " + std::to_string(offset) + ", " + std::to_string(count) +
                                           " bytes before the end of what was indexed; index it again");
        }
        at += got;
        offset += got;
        count -= got;
    }
}

std::span<const std::uint8_t> Reader::read(const Ranges& ranges, std::size_t item, std::int64_t max_file_bytes) {
    if (ranges.length && ranges.length[item] == kMissing) throw Fault(Code::missing, "no file of that name is there");
    if (ranges.length && ranges.length[item] < 0) throw Fault(Code::corrupt, "the sample has no such member");
    const std::int64_t path_id = ranges.path_id[item];
    const auto file = ranges.paths->open(path_id);
    const std::int64_t offset = ranges.offset ? ranges.offset[item] : 0;
    std::int64_t length;
    if (ranges.length) {
        length = ranges.length[item];
    } else {
        struct stat status;
        if (::fstat(file->fd, &status) != 0) throw Fault(Code::io, why("cannot stat", ranges.paths->path(path_id)));
        if (!S_ISREG(status.st_mode)) throw Fault(Code::io, ranges.paths->path(path_id) + " is not a regular file");
        length = status.st_size - offset;
    }
    if (length > max_file_bytes) {
        throw Fault(Code::limit,
                    std::to_string(length) + " bytes, more than max_file_bytes=" + std::to_string(max_file_bytes));
    }
    const bool checked = ranges.check != nullptr;
    const std::size_t before = checked ? kTarBlock : 0;
    const std::size_t total = before + static_cast<std::size_t>(length);
    if (buffer_.size() > kKeptBytes && total <= kKeptBytes) {  // one huge file must not pin its size for the pass
        buffer_.clear();
        buffer_.shrink_to_fit();
    }
    if (buffer_.size() < total) buffer_.resize(total);
    fill(file->fd, 0, total, offset - static_cast<std::int64_t>(before), ranges.paths->path(path_id));
    if (checked && tar_header_check(buffer_.data()) != ranges.check[item]) {
        throw Fault(Code::changed, ranges.paths->path(path_id) + ": the tar header at byte " +
                                       std::to_string(offset - static_cast<std::int64_t>(kTarBlock)) +
                                       " is not the one that was indexed; index it again");
    }
    return {buffer_.data() + before, static_cast<std::size_t>(length)};
}

}  // namespace headrace
