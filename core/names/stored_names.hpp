// Names in a file, read on demand. Mapping the file instead would fill memory: each page fault also reads neighbouring
// pages, half a megabyte on recent kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

class BlockChecks;

struct StoredNames {
    int fd;
    std::int64_t blob_at;  // file offset
    std::uint64_t blob_bytes;
    std::int64_t offsets_at;  // file offset of count + 1 numbers of 8 bytes, which divide the blob
    std::int64_t count;
    const BlockChecks* checks = nullptr;  // of the file's blocks; null for our own file, written just now
};

// Name i is blob[offsets[i] .. offsets[i + 1]).
struct TakenNames {
    std::vector<std::uint8_t> blob;
    std::vector<std::uint64_t> offsets{0};
};

// Reads the names with these ids, in that order. Every number in the file is checked when it is used. Throws
// std::system_error (a read failed), Fault(changed) (the file became shorter), Fault(corrupt) (also for a wrong
// checksum).
TakenNames take_names(const StoredNames& stored, std::span<const std::int64_t> ids);

}  // namespace headrace
