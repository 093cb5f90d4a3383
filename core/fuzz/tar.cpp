// Tars: members that a scan reports are inside the file and read back, and samples consist of members. Header checksums
// may be recomputed after a mutation: otherwise the checksum would hide the rest.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault.hpp"
#include "common/limits.hpp"
#include "fuzz/archive_file.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"
#include "names/name_table.hpp"
#include "samples/grouping.hpp"
#include "samples/key.hpp"
#include "samples/sample_finder.hpp"
#include "tar/header.hpp"
#include "tar/tar.hpp"

namespace headrace::fuzz {
namespace {

constexpr std::size_t kBlock = tar_block_bytes, kChecksumAt = 148, kChecksumBytes = 8;

void sign_header(std::uint8_t* block) {
    std::fill_n(block + kChecksumAt, kChecksumBytes, std::uint8_t{' '});
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += block[i];
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    std::copy_n(digits, 7, block + kChecksumAt);  // with the terminating zero
}

// Sets the correct checksum of each header, following the sizes in the headers.
void sign_headers(std::vector<std::uint8_t>& file) {
    for (std::size_t at = 0; at + kBlock <= file.size();) {
        std::uint8_t* block = file.data() + at;
        if (!is_zero_block(block)) sign_header(block);
        std::size_t size = 0;
        try {
            size = is_zero_block(block) ? 0 : static_cast<std::size_t>(read_tar_header(block).size);
        } catch (const Fault&) {  // invalid size
        }
        if (size > file.size()) return;
        at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
    }
}

std::string_view part(const std::string& text, const std::vector<std::uint64_t>& offsets, std::size_t i) {
    require(i + 1 < offsets.size() && offsets[i] <= offsets[i + 1] && offsets[i + 1] <= text.size(), "rising offsets");
    return std::string_view(text).substr(offsets[i], offsets[i + 1] - offsets[i]);
}

void check_members(const TarMembers& m, Bytes file) {
    const std::size_t count = m.size.size();
    require(m.name_offsets.size() == count + 1 && m.type.size() == count && m.data_offset.size() == count &&
                m.check.size() == count && m.link_offsets.size() == m.link_of.size() + 1,
            "columns of one length");
    std::int64_t last_end = 0;
    for (std::size_t i = 0; i < count; ++i) {
        part(m.names, m.name_offsets, i);
        const std::int64_t at = m.data_offset[i];
        require(at >= last_end + tar_block_bytes && m.size[i] >= 0, "members one after another");
        last_end = at + m.size[i];
        require(last_end <= static_cast<std::int64_t>(file.size()) || m.size[i] == 0, "members inside the file");
        if (m.type[i] == 'S') continue;
        require(tar_header_check(file.data() + at - tar_block_bytes) == m.check[i], "the check of the header");
    }
    for (std::size_t i = 0; i < m.link_of.size(); ++i) {
        part(m.links, m.link_offsets, i);
        require(m.link_of[i] >= 0 && m.link_of[i] < static_cast<std::int64_t>(count), "links of members");
        require(i == 0 || m.link_of[i - 1] < m.link_of[i], "links in order");
    }
}

// Expected result of grouping: the last member by key and extension.
using Named = std::map<std::pair<std::string, std::string>, std::int64_t>;

Named named(const Names& names, const std::vector<std::uint8_t>& types) {
    Named found;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (types[i] != '0' && types[i] != '7') continue;
        const MemberName split = split_name(names.at(static_cast<std::int64_t>(i)));
        std::string extension(split.extension);
        for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
        if (!split.key.empty()) found[{std::string(split.key), extension}] = static_cast<std::int64_t>(i);
    }
    return found;
}

void check_samples(const Samples& s, const TarMembers& m) {
    const Named expected = named({m.names, m.name_offsets}, m.type);
    SampleFinder finder;
    finder.add({m.names, m.name_offsets, s.first, s.member, s.extension});
    require(static_cast<std::size_t>(finder.size()) == s.folder_of.size(), "a folder a sample, or none");
    std::size_t seen = 0;
    for (std::int64_t i = 0; i < finder.size(); ++i) {
        const std::string_view key = finder.key(i);
        const std::size_t slash = key.find('/');
        const std::int32_t folder = s.folder_of[i];
        require((folder < 0) == (slash == std::string_view::npos), "a folder where the key has one");
        require(folder < 0 || part(s.folders, s.folder_offsets, folder) == key.substr(0, slash), "its folder");
        for (std::size_t extension = 0; extension < s.extensions.size(); ++extension) {
            std::vector<std::uint8_t> ranks(max_extensions, not_in_column);
            ranks[extension] = 0;
            const FoundMember found = finder.find(i, ranks);
            const auto at = expected.find({std::string(key), s.extensions[extension]});
            require(found.member == (at == expected.end() ? -1 : at->second), "the last member of that name");
            seen += found.member >= 0;
        }
    }
    require(seen == expected.size() && seen == s.member.size(), "every member in one sample");
}

// Checks that a reader returns regular members exactly as stored in the file.
void check_reading(const TarMembers& m, Bytes file, const ArchiveFile& archive) {
    const std::vector<std::int64_t> path_id(m.size.size(), 0);
    const Ranges ranges{archive.paths(), path_id.data(), m.data_offset.data(), m.size.data(), m.check.data(), {}};
    for (std::size_t i = 0; i < m.size.size(); ++i) {
        if (m.type[i] == 'S') continue;
        const Bytes got = archive.read(ranges, i);
        const Bytes expected = m.size[i] == 0 ? Bytes{} : file.subspan(m.data_offset[i], m.size[i]);
        require(std::equal(got.begin(), got.end(), expected.begin(), expected.end()), "the bytes of a member");
    }
}

void run(Input input) {
    static ArchiveFile archive;
    const bool sign = input.byte() % 2 == 1;
    const int slice = 1 + input.byte() % 8;
    std::vector<std::uint8_t> file(input.rest().begin(), input.rest().end());
    if (sign) sign_headers(file);
    archive.set(file);
    TarMembers members;
    try {
        TarScanner scanner(archive.path());
        while (scanner.advance(slice)) {
        }
        members = scanner.take();
    } catch (const Fault& fault) {
        require(fault.code == Code::corrupt || fault.code == Code::limit,
                "no other fault: " + std::string(fault.what()));
        return;
    }
    check_members(members, file);
    check_samples(group_members({members.names, members.name_offsets}, members.type), members);
    check_reading(members, file, archive);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
