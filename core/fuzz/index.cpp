// Indexes from untrusted files: names, their hash table and samples of members. For any numbers, a lookup returns a
// valid answer or reports corruption. Checksums of blocks equal libdeflate's however the bytes were added, and a
// changed byte is detected in its block, and only there.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <libdeflate.h>

#include "common/block_checks.hpp"
#include "common/fault.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"
#include "names/name_table.hpp"
#include "samples/grouping.hpp"
#include "samples/sample_finder.hpp"

namespace headrace::fuzz {
namespace {

// Returns mostly small numbers, as in a small index, and some of any size.
template <typename T>
std::vector<T> numbers(Input& input, std::size_t most) {
    std::vector<T> values(input.byte() % (most + 1));
    for (T& value : values) {
        const std::uint8_t byte = input.byte();
        value = byte < 250 ? static_cast<T>(byte % 24) : static_cast<T>(input.take<std::uint64_t>());
    }
    return values;
}

// Returns ascending numbers, like valid offsets, in three of four cases.
template <typename T>
std::vector<T> offsets(Input& input, std::size_t most) {
    std::vector<T> values = numbers<T>(input, most);
    if (input.byte() % 4 != 0) {
        for (std::size_t i = 1; i < values.size(); ++i) values[i] = static_cast<T>(values[i] % 4 + values[i - 1]);
    }
    return values;
}

void find_names(Input& input, std::string_view text, const std::vector<std::uint64_t>& name_offsets) {
    const auto starts = offsets<std::uint32_t>(input, 33);
    const auto order = numbers<std::int32_t>(input, 24);
    const NameLookup lookup{{text, name_offsets}, starts, order};
    const auto name = text.substr(0, input.byte() % (text.size() + 1));
    const auto before = static_cast<std::int64_t>(input.take<std::uint16_t>());
    try {
        const std::int64_t found = lookup.find(name, before);
        require(found < 0 || (found < before && lookup.names.at(found) == name), "an id of that name");
        const std::int64_t path = lookup.find_path(name);
        require(path < 0 || path + 1 < static_cast<std::int64_t>(name_offsets.size()), "an id that is there");
    } catch (const Fault& fault) {
        require(fault.code == Code::corrupt, "no other fault: " + std::string(fault.what()));
    }
}

void find_samples(Input& input, std::string_view text, const std::vector<std::uint64_t>& name_offsets) {
    const auto first = offsets<std::uint32_t>(input, 12);
    const auto member = numbers<std::int32_t>(input, 24);
    auto extension = numbers<std::uint8_t>(input, 24);
    if (input.byte() % 8 != 0) extension.resize(member.size());
    std::vector<std::uint8_t> ranks(2 * max_extensions, not_in_column);
    for (std::size_t i = 0; i < 16; ++i) ranks[i] = input.byte() % 4;
    SampleFinder finder;
    try {
        finder.add({text, name_offsets, first, member, extension});
        finder.add({text, name_offsets, first, member, extension});
    } catch (const Fault& fault) {
        require(fault.code == Code::corrupt, "no other fault: " + std::string(fault.what()));
        return;
    }
    for (std::int64_t id = -1; id <= finder.size(); ++id) {
        try {
            const FoundMember found = finder.find(id, ranks);
            require(found.archive >= 0 && found.archive < 2, "an archive that is there");
            require(text.empty() || finder.key(id).size() <= text.size(), "a key of its names");
        } catch (const Fault& fault) {
            require(fault.code == Code::corrupt, "no other fault: " + std::string(fault.what()));
        } catch (const std::out_of_range&) {
            require(id < 0 || id >= finder.size(), "an error for ids that are none alone");
        }
    }
}

bool passes(const BlockChecks& checks, int fd, std::int64_t from, std::int64_t to) {
    try {
        checks.check(fd, from, to);
        return true;
    } catch (const Fault& fault) {
        require(fault.code == Code::corrupt, "no other fault: " + std::string(fault.what()));
        return false;
    }
}

void check_blocks(Input& input) {
    static const int fd = memfd_create("index", MFD_CLOEXEC);
    std::vector<std::uint8_t> bytes(input.take<std::uint16_t>());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
    const std::int64_t begin = input.byte(), size = static_cast<std::int64_t>(bytes.size()), end = begin + size;
    BlockSums summing;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t part = std::min<std::size_t>(1 + input.take<std::uint16_t>(), bytes.size() - at);
        summing.add({bytes.data() + at, part});
        at += part;
    }
    const std::vector<std::uint32_t> sums = summing.sums();
    for (std::size_t block = 0; block < sums.size(); ++block) {
        const std::size_t at = block * checked_block_bytes;
        const std::size_t part = std::min<std::size_t>(checked_block_bytes, bytes.size() - at);
        require(libdeflate_crc32(0, bytes.data() + at, part) == sums[block], "the CRC-32 of a block");
    }
    require(ftruncate(fd, 0) == 0 && ftruncate(fd, end) == 0, "ftruncate");
    require(bytes.empty() || pwrite(fd, bytes.data(), bytes.size(), begin) == size, "pwrite");
    require(passes({begin, end, sums}, fd, begin, end), "sound bytes");
    if (bytes.empty()) return;
    const std::int64_t changed = input.take<std::uint16_t>() % size;
    const std::uint8_t other = bytes[changed] ^ static_cast<std::uint8_t>(1 + input.byte() % 255);
    require(pwrite(fd, &other, 1, begin + changed) == 1, "pwrite");
    const BlockChecks checks(begin, end, sums);
    const std::int64_t from = begin + input.take<std::uint16_t>() % size, to = from + input.take<std::uint16_t>();
    const bool there = to <= end && from < to &&
                       (from - begin) / checked_block_bytes <= changed / checked_block_bytes &&
                       changed / checked_block_bytes <= (to - 1 - begin) / checked_block_bytes;
    require(passes(checks, fd, from, to) == (to <= end && !there), "what is wrong is noticed there alone");
}

void run(Input input) {
    if (input.byte() % 4 == 0) {
        check_blocks(input);
        return;
    }
    const auto name_offsets = offsets<std::uint64_t>(input, 24);
    const bool samples = input.byte() % 2 == 1;
    // The text reuses the bytes of the numbers that follow; they are independent.
    const std::string text(input.rest().begin(), input.rest().end());
    samples ? find_samples(input, text, name_offsets) : find_names(input, text, name_offsets);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
