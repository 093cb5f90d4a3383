#include "batch/reader.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "tar/header.hpp"

namespace headrace {

namespace {

// Room for a name and extra fields. If the next member follows directly, as in most zips, its offset is the bound
// instead, and no bytes are read in vain.
constexpr std::int64_t kZipAhead = 512;

void check_length(std::int64_t length, std::int64_t max_file_bytes) {
    if (length <= max_file_bytes) return;
    throw Fault(Code::limit,
                std::to_string(length) + " bytes, more than max_file_bytes=" + std::to_string(max_file_bytes));
}

ZipEntry zip_entry(const Ranges& ranges, std::size_t item) {
    const ZipRanges& zip = ranges.zip;
    return {.packed = zip.packed[item],
            .size = ranges.length[item],
            .room = zip.room[item],
            .method = zip.method[item],
            .crc = zip.crc[item],
            .flags = zip.flags[item],
            .check = ranges.check[item]};
}

}  // namespace

// Open file, or a part of a file in memory, and its name in messages.
struct Reader::Source {
    const Paths& paths;
    std::int64_t path_id;
    const HeldPart* held;
    std::shared_ptr<const Paths::File> file;  // null for a part in memory

    std::string path() const { return paths.path(path_id); }

    std::int64_t size() const {
        if (held != nullptr) return held->first + static_cast<std::int64_t>(held->bytes.size());
        struct stat status;
        if (::fstat(file->fd, &status) != 0) throw TransportFault(errno, "cannot stat " + path());
        if (!S_ISREG(status.st_mode)) throw Fault(Code::io, path() + " is not a regular file");
        return status.st_size;
    }

    [[noreturn]] void end(std::int64_t at, std::size_t missing) const {
        throw Fault(Code::changed, path() + " ends at byte " + std::to_string(at) + ", " + std::to_string(missing) +
                                       " bytes before the end of what was indexed; index it again");
    }
};

Reader::Start Reader::read_start(const Ranges& ranges, std::size_t item, std::size_t most, std::int64_t max_file_bytes,
                                 Job& job) {
    if (ranges.length && ranges.length[item] == kMissing) throw Fault(Code::missing, "no file of that name is");
    if (ranges.length && ranges.length[item] < 0) throw Fault(Code::corrupt, "the sample has no such member");
    for (std::size_t attempt = 0;; ++attempt) {
        try {
            return read_once(ranges, item, most, max_file_bytes);
        } catch (const TransportFault& fault) {
            if (!may_pass(fault.error)) throw;
            if (attempt == retries_.waits.size() || retries_.given_up.load(std::memory_order_relaxed)) {
                give_up(fault, attempt);
            }
            if (loses_descriptor(fault.error)) ranges.paths->forget(ranges.path_id[item]);
        }
        retries_.made.fetch_add(1, std::memory_order_relaxed);
        if (!job.pause(retries_.waits[attempt])) throw Fault(Code::cancelled, "cancelled");
    }
}

void Reader::give_up(const TransportFault& fault, std::size_t attempt) {
    const std::size_t most = retries_.waits.size();
    const std::string how = attempt == most ? ", at each of " : ", as another read did at each of ";
    retries_.given_up.store(true, std::memory_order_relaxed);
    throw Fault(Code::io, fault.what() + how + std::to_string(most + 1) + " attempts");
}

Reader::Start Reader::read_once(const Ranges& ranges, std::size_t item, std::size_t most, std::int64_t max_file_bytes) {
    const std::int64_t path_id = ranges.path_id[item];
    const HeldPart* const held = ranges.held_part(item);
    const Source source{*ranges.paths, path_id, held, held == nullptr ? ranges.paths->open(path_id) : nullptr};
    const std::int64_t offset = ranges.offset ? ranges.offset[item] : 0;
    if (ranges.zip.packed != nullptr) {
        const ZipEntry entry = zip_entry(ranges, item);
        check_zip_entry(entry, max_file_bytes);
        return read_zip(source, offset, entry, most);
    }
    const std::int64_t length = ranges.length ? ranges.length[item] : source.size() - offset;
    check_length(length, max_file_bytes);
    const auto all = static_cast<std::size_t>(length);
    if (ranges.prefix != nullptr) {
        const auto prefix = ranges.prefix_of(item);
        if (most < prefix.size() + all) return {prefix, prefix.size() + all};  // a header is all that a start is for
        return {read_after(source, prefix, offset, all), prefix.size() + all};
    }
    return {read_range(source, offset, std::min(all, most), ranges.check ? &ranges.check[item] : nullptr), all};
}

std::span<const std::uint8_t> Reader::read_range(const Source& source, std::int64_t offset, std::size_t count,
                                                 const std::uint32_t* check) {
    const std::size_t header = check ? tar_block_bytes : 0;
    const std::int64_t start = offset - static_cast<std::int64_t>(header);
    const auto bytes = load(source, start, header + count);
    if (check && tar_header_check(bytes.data()) != *check) {
        throw Fault(Code::changed, source.path() + ": the tar header at byte " + std::to_string(start) +
                                       " is not the one that was indexed; index it again");
    }
    return bytes.subspan(header);
}

Reader::Start Reader::read_zip(const Source& source, std::int64_t offset, const ZipEntry& entry, std::size_t most) {
    const auto all = static_cast<std::size_t>(entry.packed);
    const std::size_t wanted = is_stored(entry) ? std::min(all, most) : all;
    const std::int64_t ahead =
        static_cast<std::int64_t>(kZipHeaderBytes) + kZipAhead + static_cast<std::int64_t>(wanted);
    auto count = static_cast<std::size_t>(std::min(entry.room, ahead));
    for (;;) {
        const auto bytes = load(source, offset, count);
        try {
            const std::size_t header = zip_header_bytes(bytes, entry);
            if (header + wanted <= count) {
                const auto local = bytes.first(header), data = bytes.subspan(header, wanted);
                if (wanted == all) return {unpacker_.unpack(local, data, entry), static_cast<std::size_t>(entry.size)};
                check_zip_data_header(local, entry);
                return {data, all};
            }
            count = header + wanted;  // an unusually long header
        } catch (const Fault& fault) {
            if (fault.code != Code::changed) throw;
            throw Fault(Code::changed, source.path() + " at byte " + std::to_string(offset) + ": " + fault.what());
        }
    }
}

std::span<const std::uint8_t> Reader::read_after(const Source& source, std::span<const std::uint8_t> prefix,
                                                 std::int64_t offset, std::size_t count) {
    std::uint8_t* const begin = buffer_.reserve(prefix.size() + count);
    std::copy(prefix.begin(), prefix.end(), begin);
    load_into(begin + prefix.size(), source, offset, count);
    return {begin, prefix.size() + count};
}

std::span<const std::uint8_t> Reader::load(const Source& source, std::int64_t offset, std::size_t count) {
    if (source.held != nullptr) return load_held(source, offset, count);
    std::uint8_t* const begin = buffer_.reserve(std::max<std::size_t>(1, count));
    load_into(begin, source, offset, count);
    return {begin, count};
}

void Reader::load_into(std::uint8_t* begin, const Source& source, std::int64_t offset, std::size_t count) {
    for (std::size_t done = 0; done < count;) {
        const std::int64_t at = offset + static_cast<std::int64_t>(done);
        const ssize_t got = ::pread(source.file->fd, begin + done, count - done, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw TransportFault(errno, "cannot read " + source.path());
        if (got == 0) source.end(at, count - done);
        done += static_cast<std::size_t>(got);
    }
}

std::span<const std::uint8_t> Reader::load_held(const Source& source, std::int64_t offset, std::size_t count) {
    const auto& [bytes, first] = *source.held;
    if (offset < first) throw Fault(Code::io, source.path() + ": no bytes are held before " + std::to_string(first));
    const auto at = static_cast<std::uint64_t>(offset - first);
    const std::size_t there = at < bytes.size() ? bytes.size() - static_cast<std::size_t>(at) : 0;
    if (there < count) source.end(offset + static_cast<std::int64_t>(there), count - there);
    return bytes.subspan(static_cast<std::size_t>(at), count);
}

}  // namespace headrace
