// Reads one sample's item: a file, a range of one, or a member of an archive, checked against what was indexed. What
// the caller holds in memory is checked alike, and not copied.
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

// One a thread; keeps its memory between items.
class Reader {
public:
    // `retries` is shared by the readers of an engine, and outlives them.
    explicit Reader(Retries& retries) : retries_(retries) {}

    // The item's bytes, valid until the next call. What fails for a reason that may pass is tried again after a pause,
    // which ends with the job. Throws Fault: io (open, read), changed (shorter than indexed, or another header), limit
    // (max_file_bytes), corrupt (no such member, or a damaged one), unsupported (a zip's encryption or method),
    // cancelled.
    std::span<const std::uint8_t> read(const Ranges& ranges, std::size_t item, std::int64_t max_file_bytes, Job& job) {
        return read_start(ranges, item, std::numeric_limits<std::size_t>::max(), max_file_bytes, job).bytes;
    }

    // An item's beginning, and how long the whole item is.
    struct Start {
        std::span<const std::uint8_t> bytes;
        std::size_t of = 0;  // bytes

        bool is_all() const { return bytes.size() == of; }
    };
    // As read(), of `most` bytes if the item has more: what is before the data is checked all the same, what only the
    // whole data tells (a zip's CRC) is not. A zip's deflated member comes whole.
    Start read_start(const Ranges&, std::size_t item, std::size_t most, std::int64_t max_file_bytes, Job&);

private:
    struct Source;
    [[noreturn]] void give_up(const TransportFault&, std::size_t attempt);
    Start read_once(const Ranges&, std::size_t item, std::size_t most, std::int64_t max_file_bytes);
    std::span<const std::uint8_t> read_range(const Source&, std::int64_t offset, std::size_t count,
                                             const std::uint32_t* check);
    Start read_zip(const Source&, std::int64_t offset, const ZipEntry& entry, std::size_t most);
    std::span<const std::uint8_t> load(const Source&, std::int64_t offset, std::size_t count);
    static std::span<const std::uint8_t> load_held(const Source&, std::int64_t offset, std::size_t count);

    // One huge file must not pin its size for the pass.
    static constexpr std::size_t kKeptBytes = std::size_t{16} << 20;
    Retries& retries_;
    Scratch buffer_{kKeptBytes};
    ZipUnpacker unpacker_{kKeptBytes};
};

}  // namespace headrace
