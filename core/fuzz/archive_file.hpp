// In-memory archive, and reading of its members as in a loader.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "batch/job.hpp"
#include "batch/reader.hpp"
#include "batch/source.hpp"
#include "common/limits.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"

namespace headrace::fuzz {

class ArchiveFile {
public:
    ArchiveFile() : fd_(memfd_create("archive", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
        require(fd_ >= 0, "memfd_create");
        offsets_[1] = path_.size();
        const Bytes name(reinterpret_cast<const std::uint8_t*>(path_.data()), path_.size());
        paths_ = std::make_shared<Paths>("", name, offsets_, true, false);
    }
    ~ArchiveFile() { close(fd_); }
    ArchiveFile(const ArchiveFile&) = delete;
    ArchiveFile& operator=(const ArchiveFile&) = delete;

    void set(Bytes bytes) {
        const auto size = static_cast<off_t>(bytes.size());
        require(ftruncate(fd_, 0) == 0 && ftruncate(fd_, size) == 0, "ftruncate");
        require(bytes.empty() || pwrite(fd_, bytes.data(), bytes.size(), 0) == size, "pwrite");
    }
    const std::string& path() const { return path_; }
    // Contains only this file, as number 0.
    std::shared_ptr<const Paths> paths() const { return paths_; }
    // Reads a member; valid until the next call. Throws Fault.
    Bytes read(const Ranges& ranges, std::size_t item) const {
        static Retries retries;
        static Reader reader(retries);
        static Job job;
        return reader.read(ranges, item, Limits{}.max_file_bytes, job);
    }

private:
    int fd_;
    std::string path_;
    std::uint64_t offsets_[2] = {0, 0};
    std::shared_ptr<const Paths> paths_;
};

}  // namespace headrace::fuzz
