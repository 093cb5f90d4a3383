// Where the samples' bytes lie: files by number, and ranges in them.
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

// The files of a dataset: names below a root, held as one blob with offsets (borrowed, not copied). There may be very
// many of them, so each name and its offsets are checked when it is asked for, none when these are made.
class Paths {
public:
    // `keep_open` suits archives, which are read again and again: up to kOpenFiles descriptors stay open.
    // `inside`: a name that leads out of the root is a fault; otherwise an absolute name stands for itself.
    Paths(std::string root, std::span<const std::uint8_t> names, std::span<const std::uint64_t> offsets, bool keep_open,
          bool inside);

    std::size_t size() const { return offsets_.size() - 1; }
    // Throws Fault changed (no such index, or damaged offsets), corrupt (no name: the sample has no such file),
    // missing (a name with a NUL byte, which would end it early), outside.
    std::string path(std::int64_t index) const;

    // Owns a descriptor; shared by the readers that use it now.
    struct File {
        int fd;
        explicit File(int fd_) : fd(fd_) {}
        File(const File&) = delete;
        File& operator=(const File&) = delete;
        ~File();
    };
    // Throws TransportFault, and what `path` throws.
    std::shared_ptr<const File> open(std::int64_t index) const;
    // Lets go of a descriptor kept open, so that the next `open` opens the file again. Readers that use it now keep it
    // for as long.
    void forget(std::int64_t index) const;
    // Lets go of all of them.
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

// Lengths that stand for none: the sample has no such member; a name was given, and no archive holds it.
constexpr std::int64_t kAbsent = -1, kMissing = -2;
// What the central directories of zips say of a batch's members, one a sample. Without it, bytes lie there as they are.
struct ZipRanges {
    const std::int64_t* packed = nullptr;  // bytes in the zip
    const std::int64_t* room = nullptr;    // bytes from the local header to where the next one begins
    const std::uint32_t* method = nullptr;
    const std::uint32_t* crc = nullptr;
    const std::uint32_t* flags = nullptr;
};

// A part of a file that the caller holds in memory: its bytes from `first` on. Borrowed until the job is done.
struct HeldPart {
    std::span<const std::uint8_t> bytes;
    std::int64_t first = 0;
};

// Byte ranges of a batch, one a sample. A null array stands for its default.
struct Ranges {
    std::shared_ptr<const Paths> paths;
    const std::int64_t* path_id = nullptr;
    const std::int64_t* offset = nullptr;  // default 0; in a zip that of the local header
    const std::int64_t* length = nullptr;  // default: the whole file; kAbsent or kMissing
    const std::uint32_t* check = nullptr;  // of the header before the data (tar, zip); default: none is checked
    ZipRanges zip;                         // null arrays: no zip. Else offset, length and check are there
    // Which of `held` has the sample's bytes; negative: none has, and the file is read. Default: none is held.
    const std::int64_t* held_in = nullptr;
    std::vector<HeldPart> held;

    const HeldPart* held_part(std::size_t item) const {
        return held_in == nullptr || held_in[item] < 0 ? nullptr : &held[static_cast<std::size_t>(held_in[item])];
    }
};

}  // namespace headrace
