// One member of a zip: its entry in the central directory, its local header, and its unpacked bytes.
// Layouts follow PKWARE's APPNOTE.TXT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/scratch.hpp"

struct libdeflate_decompressor;

namespace headrace {

// Fields of a central directory entry that reading needs. Untrusted.
struct ZipEntry {
    std::int64_t packed;  // bytes in the zip
    std::int64_t size;    // bytes of data
    std::int64_t room;    // bytes from its local header to the start of the next
    std::uint32_t method;
    std::uint32_t crc;
    std::uint32_t flags;
    std::uint32_t check;  // zip_header_check of its local header
};

inline constexpr std::size_t kZipHeaderBytes = 30;  // without name and extra fields

// True if the data is stored uncompressed.
bool is_stored(const ZipEntry& entry);

// Throws Fault: unsupported (encrypted, a patch, a method other than stored and deflated), limit (`max_bytes`, packed
// or not), corrupt (impossible sizes). Does not read the zip.
void check_zip_entry(const ZipEntry& entry, std::int64_t max_bytes);

// Identity of a local header: CRC-32 over its method and its name.
std::uint32_t zip_header_check(std::uint32_t method, std::span<const std::uint8_t> name);

// Returns the size of the local header at the start of `bytes`, including name and extra fields. If that exceeds
// `bytes`, the header is verified only once that many bytes are passed. Throws Fault: changed (not the indexed header),
// corrupt (the data would overlap the next member, as in a zip bomb).
std::size_t zip_header_bytes(std::span<const std::uint8_t> bytes, const ZipEntry& entry);

// Check for partial reads of a member, which its CRC cannot verify. Throws Fault(changed) if the header shows that the
// data is not the indexed data.
void check_zip_data_header(std::span<const std::uint8_t> header, const ZipEntry& entry);

// Unpacks members and reuses its memory between them.
class ZipUnpacker {
public:
    explicit ZipUnpacker(std::size_t kept_bytes);

    // Returns the member's data after a CRC check: `packed` itself if stored, else valid until the next call. `header`
    // is its local header. Throws Fault: corrupt, or changed if the header belongs to other data.
    std::span<const std::uint8_t> unpack(std::span<const std::uint8_t> header, std::span<const std::uint8_t> packed,
                                         const ZipEntry& entry);

private:
    std::span<const std::uint8_t> inflate(std::span<const std::uint8_t> packed, const ZipEntry& entry);

    struct Free {
        void operator()(libdeflate_decompressor* decompressor) const;
    };
    std::unique_ptr<libdeflate_decompressor, Free> decompressor_;
    Scratch data_;
};

}  // namespace headrace
