// Reads one sample's item: a file, a range of one, or a member of an archive, checked against what was indexed.
#pragma once

#include <cstddef>
#include <cstdint>
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
    std::span<const std::uint8_t> read(const Ranges&, std::size_t item, std::int64_t max_file_bytes, Job&);

private:
    struct Source;
    [[noreturn]] void give_up(const TransportFault&, std::size_t attempt);
    std::span<const std::uint8_t> read_once(const Ranges&, std::size_t item, std::int64_t max_file_bytes);
    std::span<const std::uint8_t> read_range(const Source&, std::int64_t offset, std::int64_t length,
                                             const std::uint32_t* check);
    std::span<const std::uint8_t> read_zip(const Source&, std::int64_t offset, const ZipEntry& entry);
    std::span<const std::uint8_t> load(const Source&, std::int64_t offset, std::size_t count);

    // One huge file must not pin its size for the pass.
    static constexpr std::size_t kKeptBytes = std::size_t{16} << 20;
    Retries& retries_;
    Scratch buffer_{kKeptBytes};
    ZipUnpacker unpacker_{kKeptBytes};
};

}  // namespace headrace
