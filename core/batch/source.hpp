// Locations of the samples' bytes: files by number, and ranges in them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace headrace {

// Files of a dataset: names relative to a root, as one borrowed blob with offsets. There may be very many, so a name
// and its offsets are checked on use, not at construction.
class Paths {
public:
    // `keep_open` is for archives, which are read repeatedly: up to kOpenFiles descriptors stay open.
    // `inside`: a name that leads out of the root is a fault; otherwise an absolute name is used directly.
    Paths(std::string root, std::span<const std::uint8_t> names, std::span<const std::uint64_t> offsets, bool keep_open,
          bool inside);

    std::size_t size() const { return offsets_.size() - 1; }
    // Throws Fault: changed (no such index, or corrupt offsets), corrupt (no name: the sample has no such file),
    // missing (a name with a NUL byte, which would truncate it), outside.
    std::string path(std::int64_t index) const;

    // Owner of a descriptor, shared by its current readers.
    struct File {
        int fd;
        explicit File(int fd_) : fd(fd_) {}
        File(const File&) = delete;
        File& operator=(const File&) = delete;
        ~File();
    };
    // Throws TransportFault, and the errors of `path`.
    std::shared_ptr<const File> open(std::int64_t index) const;
    // Releases an open descriptor, so that the next `open` reopens the file. Current readers keep the old one.
    void forget(std::int64_t index) const;
    // Releases all open descriptors.
    void close();

private:
    static constexpr std::size_t kOpenFiles = 128;
    std::shared_ptr<const File> open_new(std::int64_t index) const;

    std::string root_;
    std::span<const std::uint8_t> names_;
    std::span<const std::uint64_t> offsets_;
    bool keep_open_, inside_;
    mutable std::mutex mutex_;
    mutable std::list<std::int64_t> recent_;  // most recently used first
    struct Entry {
        std::shared_ptr<const File> file;
        std::list<std::int64_t>::iterator place;
    };
    mutable std::unordered_map<std::int64_t, Entry> open_;
};

// Lengths that mark missing bytes: the sample has no such member; no archive has a member of the given name.
constexpr std::int64_t kAbsent = -1, kMissing = -2;
// Central directory entries of a batch's zip members, one per sample. Without them, bytes are stored plainly.
struct ZipRanges {
    const std::int64_t* packed = nullptr;  // bytes in the zip
    const std::int64_t* room = nullptr;    // bytes from the local header to the start of the next
    const std::uint32_t* method = nullptr;
    const std::uint32_t* crc = nullptr;
    const std::uint32_t* flags = nullptr;
};

// Part of a file in the caller's memory: its bytes from `first` on. Borrowed until the job is done.
struct HeldPart {
    std::span<const std::uint8_t> bytes;
    std::int64_t first = 0;
};

// Byte ranges of a batch, one per sample. A null array means its default.
struct Ranges {
    std::shared_ptr<const Paths> paths;
    const std::int64_t* path_id = nullptr;
    const std::int64_t* offset = nullptr;  // default 0; in a zip, of the local header
    const std::int64_t* length = nullptr;  // default: the whole file; kAbsent or kMissing
    const std::uint32_t* check = nullptr;  // of the header before the data (tar, zip); default: no check
    ZipRanges zip;                         // null arrays: no zip. Otherwise offset, length and check are set
    // Header of `prefix_bytes` before each sample's bytes, which the file does not have; never of a zip or a tar.
    const std::uint8_t* prefix = nullptr;
    std::size_t prefix_bytes = 0;
    // Index in `held` of the sample's bytes; negative: the file is read. Default: all files are read.
    const std::int64_t* held_in = nullptr;
    std::vector<HeldPart> held;

    // True if the item's bytes are the same file's, at the same place, as in `other`.
    bool same_bytes(const Ranges& other, std::size_t item) const {
        const auto at = [&](const std::int64_t* values) { return values == nullptr ? 0 : values[item]; };
        return paths.get() == other.paths.get() && path_id != nullptr && other.path_id != nullptr &&
               path_id[item] == other.path_id[item] && at(offset) == at(other.offset) && at(length) == at(other.length);
    }
    std::span<const std::uint8_t> prefix_of(std::size_t item) const {
        return {prefix + item * prefix_bytes, prefix_bytes};
    }
    const HeldPart* held_part(std::size_t item) const {
        return held_in == nullptr || held_in[item] < 0 ? nullptr : &held[static_cast<std::size_t>(held_in[item])];
    }
};

}  // namespace headrace
