#include "names/stored_names.hpp"

#include "common/block_checks.hpp"
#include "common/fault.hpp"

namespace headrace {
TakenNames take_names(const StoredNames& stored, std::span<const std::int64_t> ids) {
    TakenNames taken;
    taken.offsets.reserve(ids.size() + 1);
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= stored.count) throw Fault(Code::corrupt, "a name that is not there is asked for");
        std::uint64_t bounds[2];
        const std::int64_t bounds_at = stored.offsets_at + id * std::int64_t{sizeof bounds[0]};
        if (stored.checks != nullptr) {
            stored.checks->check(stored.fd, bounds_at, bounds_at + std::int64_t{sizeof bounds});
        }
        read_all(stored.fd, bounds, sizeof bounds, bounds_at);
        if (bounds[0] > bounds[1] || bounds[1] > stored.blob_bytes) {
            throw Fault(Code::corrupt, "a name lies outside the names");
        }
        const std::size_t before = taken.blob.size(), length = bounds[1] - bounds[0];
        const std::int64_t at = stored.blob_at + static_cast<std::int64_t>(bounds[0]);
        if (stored.checks != nullptr) stored.checks->check(stored.fd, at, at + static_cast<std::int64_t>(length));
        taken.blob.resize(before + length);
        read_all(stored.fd, taken.blob.data() + before, length, at);
        taken.offsets.push_back(taken.blob.size());
    }
    return taken;
}

}  // namespace headrace
