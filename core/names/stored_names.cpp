#include "names/stored_names.hpp"

#include <cerrno>
#include <string>
#include <system_error>

#include <unistd.h>

#include "common/fault.hpp"

namespace headrace {
namespace {

void read_all(int fd, void* to, std::size_t count, std::int64_t at) {
    auto* next = static_cast<std::uint8_t*>(to);
    while (count > 0) {
        const ssize_t got = ::pread(fd, next, count, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw std::system_error(errno, std::generic_category());
        if (got == 0) throw Fault(Code::changed, "the index ends early, at byte " + std::to_string(at));
        next += got;
        at += got;
        count -= static_cast<std::size_t>(got);
    }
}

}  // namespace

TakenNames take_names(const StoredNames& stored, std::span<const std::int64_t> ids) {
    TakenNames taken;
    taken.offsets.reserve(ids.size() + 1);
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= stored.count) throw Fault(Code::corrupt, "a name that is not there is asked for");
        std::uint64_t bounds[2];
        read_all(stored.fd, bounds, sizeof bounds, stored.offsets_at + id * std::int64_t{sizeof bounds[0]});
        if (bounds[0] > bounds[1] || bounds[1] > stored.blob_bytes) {
            throw Fault(Code::corrupt, "a name lies outside the names");
        }
        const std::size_t before = taken.blob.size(), length = bounds[1] - bounds[0];
        taken.blob.resize(before + length);
        read_all(stored.fd, taken.blob.data() + before, length, stored.blob_at + static_cast<std::int64_t>(bounds[0]));
        taken.offsets.push_back(taken.blob.size());
    }
    return taken;
}

}  // namespace headrace
