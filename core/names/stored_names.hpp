// Names that lie in a file and are read from it when they are asked for. Mapping the file instead would fill memory: a
// page that is looked at brings its neighbours along, by the half megabyte on recent kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

class BlockChecks;

struct StoredNames {
    int fd;
    std::int64_t blob_at;  // byte in the file
    std::uint64_t blob_bytes;
    std::int64_t offsets_at;  // of count + 1 numbers of 8 bytes, which divide the blob
    std::int64_t count;
    const BlockChecks* checks = nullptr;  // of the file's blocks; none: it is our own, and was written a moment ago
};

// Name i is blob[offsets[i] .. offsets[i + 1]).
struct TakenNames {
    std::vector<std::uint8_t> blob;
    std::vector<std::uint64_t> offsets{0};
};

// The names with these ids, in that order. Every number in the file is checked when it is used. Throws
// std::system_error (reading failed), Fault(changed) (the file is shorter than it was), Fault(corrupt), which is also
// what does not fit its checksum.
TakenNames take_names(const StoredNames& stored, std::span<const std::int64_t> ids);

}  // namespace headrace
