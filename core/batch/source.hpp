// Where one sample's bytes lie, and reading them.
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
    // Throws Fault io, and what `path` throws.
    std::shared_ptr<const File> open(std::int64_t index) const;
    // Lets go of the descriptors kept open. Readers that use one now keep it for as long.
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

// Byte ranges of a batch, one a sample. A null array stands for its default.
struct Ranges {
    std::shared_ptr<const Paths> paths;
    const std::int64_t* path_id = nullptr;
    const std::int64_t* offset = nullptr;  // default 0
    const std::int64_t* length = nullptr;  // default: the whole file; kAbsent or kMissing
    const std::uint32_t* check = nullptr;  // hash of the tar header before the data; default: none is checked
};

// Bytes of one encoded item, in a buffer that is reused.
class Reader {
public:
    // Throws Fault io (open, read), changed (shorter than indexed, or another tar header), limit (max_file_bytes),
    // corrupt (the sample has no such member), missing, outside.
    std::span<const std::uint8_t> read(const Ranges&, std::size_t item, std::int64_t max_file_bytes);

private:
    void fill(int fd, std::size_t at, std::size_t count, std::int64_t offset, const std::string& path);
    std::vector<std::uint8_t> buffer_;
};

}  // namespace headrace
