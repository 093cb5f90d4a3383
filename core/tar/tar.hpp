// Scanner of the members' positions in a tar. It reads headers and skips data; it never extracts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tar/header.hpp"
#include "tar/pax.hpp"
#include "tar/window.hpp"

namespace headrace {

constexpr std::int64_t max_tar_record_bytes = 1 << 20;  // one long name or set of PAX records

// All members in archive order; name i is names[name_offsets[i] .. name_offsets[i + 1]), verbatim except for trailing
// slashes of folders.
struct TarMembers {
    std::string names;
    std::vector<std::uint64_t> name_offsets{0};
    std::vector<std::uint8_t> type;  // TarHeader::type; sparse files of any format are 'S'
    std::vector<std::int64_t> data_offset;
    std::vector<std::int64_t> size;    // bytes of data; 0 for members without data, whatever the header says
    std::vector<std::uint32_t> check;  // tar_header_check of the member's header block, which directly precedes its
                                       // data unless it is sparse
    std::string links;                 // targets of the links, stored like names
    std::vector<std::uint64_t> link_offsets{0};
    std::vector<std::int64_t> link_of;  // member of each link, ascending
    std::int64_t directories = 0, hard_and_soft_links = 0, devices = 0, sparse = 0, unknown = 0;  // members by kind
    std::int64_t bytes_after_end = 0;  // bytes after the end mark, unless padding: a tar joined by `cat`
};

// Scanner of one tar. Throws Fault: io (cannot be opened or read), corrupt (no tar header, or truncated), limit.
// Every message names the path and the byte.
class TarScanner {
public:
    explicit TarScanner(const std::string& path);
    // Scans `size` bytes from `reader`, named `name` in messages.
    TarScanner(const std::string& name, std::int64_t size, RangeReader reader, GrowthSource growth);

    // Reads up to `headers` more headers; returns false at the end. Callers can handle interrupts between calls.
    bool advance(int headers);

    TarMembers take() { return std::move(members_); }

private:
    bool step();
    bool at_zero_block();
    void at_header(const TarHeader& header);
    void add_member(const TarHeader& header);
    void count(TarKind kind);
    std::string name_of(const TarHeader& header) const;
    std::string link_of(const TarHeader& header) const;
    std::string record(const TarHeader& header, const std::string& name);
    std::int64_t end_of_data(std::int64_t start, std::int64_t size, const std::string& name) const;
    [[noreturn]] void fail(const std::string& what) const;

    std::string path_;
    FileWindow file_;
    std::int64_t position_ = 0;
    std::optional<std::string> long_name_, long_link_;
    bool owed_ = false;  // records were read, so their member must follow
    PaxRecords local_, global_;
    TarMembers members_;
};

}  // namespace headrace
