#include "batch/source.hpp"

#include <cerrno>
#include <stdexcept>

#include <fcntl.h>
#include <unistd.h>

#include "batch/transport.hpp"
#include "common/fault.hpp"
#include "names/inside.hpp"

namespace headrace {

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
    if (name.find('\0') != std::string::npos) throw Fault(Code::missing, "the name holds a NUL byte, as no file does");
    if (inside_ && leads_out(name)) throw Fault(Code::outside, "the path " + name + " leads out of " + root_);
    return root_.empty() || name.front() == '/' ? name : root_ + "/" + name;
}

std::shared_ptr<const Paths::File> Paths::open_new(std::int64_t index) const {
    const std::string where = path(index);
    // O_NONBLOCK: a FIFO with an image's name must not block; it has no effect on regular files.
    const int fd = ::open(where.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) throw TransportFault(errno, "cannot open " + where);
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

void Paths::forget(std::int64_t index) const {
    std::lock_guard lock(mutex_);
    const auto found = open_.find(index);
    if (found == open_.end()) return;
    recent_.erase(found->second.place);
    open_.erase(found);
}

void Paths::close() {
    std::lock_guard lock(mutex_);
    open_.clear();
    recent_.clear();
}

}  // namespace headrace
