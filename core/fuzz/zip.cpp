// Zips: the directory's arrays are consistent, and each member reads as bytes with the directory's CRC, or fails.
#include <libdeflate.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "common/fault.hpp"
#include "fuzz/archive_file.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"
#include "zip/directory.hpp"

namespace headrace::fuzz {
namespace {

void check_members(const ZipMembers& m) {
    const std::size_t count = m.size.size();
    require(m.name_offsets.size() == count + 1 && m.packed.size() == count && m.offset.size() == count &&
                m.method.size() == count && m.crc.size() == count && m.flags.size() == count && m.check.size() == count,
            "columns of one length");
    require(m.name_offsets.front() == 0 && m.name_offsets.back() == m.names.size() &&
                std::is_sorted(m.name_offsets.begin(), m.name_offsets.end()),
            "offsets that divide the names");
    require(m.start >= 0, "a directory inside the file");
    for (std::size_t i = 0; i < count; ++i) require(m.size[i] >= 0 && m.packed[i] >= 0, "sizes of 0 or more");
}

// Returns the bytes from each local header to the next by offset, or to the directory.
std::vector<std::int64_t> room_of(const ZipMembers& m) {
    std::vector<std::size_t> by_place(m.offset.size());
    std::iota(by_place.begin(), by_place.end(), 0);
    std::ranges::stable_sort(by_place, {}, [&](std::size_t i) { return m.offset[i]; });
    std::vector<std::int64_t> room(by_place.size());
    for (std::size_t i = 0; i < by_place.size(); ++i) {
        const std::int64_t next = i + 1 < by_place.size() ? m.offset[by_place[i + 1]] : m.start;
        room[by_place[i]] = next - m.offset[by_place[i]];
    }
    return room;
}

void check_reading(const ZipMembers& m, Bytes file, const ArchiveFile& archive) {
    const std::vector<std::int64_t> path_id(m.size.size(), 0), room = room_of(m);
    const ZipRanges zip{m.packed.data(), room.data(), m.method.data(), m.crc.data(), m.flags.data()};
    const Ranges ranges{archive.paths(), path_id.data(), m.offset.data(), m.size.data(), m.check.data(), zip};
    const auto file_bytes = static_cast<std::int64_t>(file.size());
    for (std::size_t i = 0; i < m.size.size(); ++i) {
        // The checks of an index before reads.
        const bool inside = m.offset[i] >= 0 && m.packed[i] <= file_bytes && m.offset[i] <= file_bytes - m.packed[i];
        if (!inside || room[i] < 0 || m.offset[i] + room[i] > file_bytes) continue;
        try {
            const Bytes got = archive.read(ranges, i);
            require(static_cast<std::int64_t>(got.size()) == m.size[i], "as many bytes as the directory says");
            require(libdeflate_crc32(0, got.data(), got.size()) == m.crc[i],
                    "bytes of the CRC that the directory says");
        } catch (const Fault& fault) {
            require(fault.code == Code::corrupt || fault.code == Code::changed || fault.code == Code::unsupported ||
                        fault.code == Code::limit,
                    "no other fault: " + std::string(fault.what()));
        }
    }
}

void run(Input input) {
    static ArchiveFile archive;
    archive.set(input.rest());
    ZipMembers members;
    try {
        members = read_zip_directory(archive.path());
    } catch (const Fault& fault) {
        require(fault.code == Code::corrupt || fault.code == Code::unsupported,
                "no other fault: " + std::string(fault.what()));
        return;
    }
    check_members(members);
    check_reading(members, input.rest(), archive);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
