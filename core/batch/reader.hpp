// Reader of one sample's item: a file, a range of a file, or an archive member, checked against the index. Items in the
// caller's memory are checked too, but not copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "batch/job.hpp"
#include "batch/source.hpp"
#include "batch/transport.hpp"
#include "common/scratch.hpp"
#include "zip/member.hpp"

namespace headrace {

// One per thread; reuses its memory between items.
class Reader {
public:
    // `retries` is shared by an engine's readers and outlives them.
    explicit Reader(Retries& retries) : retries_(retries) {}

    // Returns the item's bytes, valid until the next call. Retries transient failures after a pause, which ends with
    // the job. Throws Fault: io (open, read), changed (shorter than indexed, or another header), limit
    // (max_file_bytes), corrupt (no such member, or a corrupt one), unsupported (a zip's encryption or method),
    // cancelled.
    std::span<const std::uint8_t> read(const Ranges& ranges, std::size_t item, std::int64_t max_file_bytes, Job& job) {
        return read_start(ranges, item, std::numeric_limits<std::size_t>::max(), max_file_bytes, job).bytes;
    }

    // Prefix of an item, and the whole item's size.
    struct Start {
        std::span<const std::uint8_t> bytes;
        std::size_t of = 0;  // size of the whole item in bytes

        bool is_all() const { return bytes.size() == of; }
    };
    // Like read(), but at most `most` bytes: checks headers before the data, but not the whole data (a zip's CRC). A
    // deflated zip member is read whole.
    Start read_start(const Ranges&, std::size_t item, std::size_t most, std::int64_t max_file_bytes, Job&);

private:
    struct Source;
    [[noreturn]] void give_up(const TransportFault&, std::size_t attempt);
    Start read_once(const Ranges&, std::size_t item, std::size_t most, std::int64_t max_file_bytes);
    std::span<const std::uint8_t> read_range(const Source&, std::int64_t offset, std::size_t count,
                                             const std::uint32_t* check);
    Start read_zip(const Source&, std::int64_t offset, const ZipEntry& entry, std::size_t most);
    std::span<const std::uint8_t> read_after(const Source&, std::span<const std::uint8_t> prefix, std::int64_t offset,
                                             std::size_t count);
    std::span<const std::uint8_t> load(const Source&, std::int64_t offset, std::size_t count);
    void load_into(std::uint8_t* to, const Source&, std::int64_t offset, std::size_t count);
    static std::span<const std::uint8_t> load_held(const Source&, std::int64_t offset, std::size_t count);

    // A single huge file must not keep its memory allocated for the pass.
    static constexpr std::size_t kKeptBytes = std::size_t{16} << 20;
    Retries& retries_;
    Scratch buffer_{kKeptBytes};
    ZipUnpacker unpacker_{kKeptBytes};
};

}  // namespace headrace
