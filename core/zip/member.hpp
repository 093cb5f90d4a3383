// One member of a zip: what the central directory says of it, its local header, and its bytes unpacked.
// Layouts are those of PKWARE's APPNOTE.TXT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/scratch.hpp"

struct libdeflate_decompressor;

namespace headrace {

// An entry of the central directory, as far as reading needs it. Untrusted.
struct ZipEntry {
    std::int64_t packed;  // bytes in the zip
    std::int64_t size;    // bytes of data
    std::int64_t room;    // bytes from its local header to where the next one begins
    std::uint32_t method;
    std::uint32_t crc;
    std::uint32_t flags;
    std::uint32_t check;  // zip_header_check of its local header
};

inline constexpr std::size_t kZipHeaderBytes = 30;  // less its name and extra fields

// Whether its bytes lie in the zip as they are.
bool is_stored(const ZipEntry& entry);

// Throws Fault: unsupported (encrypted, a patch, a method other than stored and deflated), limit (`max_bytes`, packed
// or not), corrupt (sizes that cannot be). Nothing of the zip is read for it.
void check_zip_entry(const ZipEntry& entry, std::int64_t max_bytes);

// Identity of a local header: CRC-32 over its method and its name.
std::uint32_t zip_header_check(std::uint32_t method, std::span<const std::uint8_t> name);

// Bytes of the local header that `bytes` begins with, name and extra fields included. Where that is more than is there,
// only with that many is it known to be the right one. Throws Fault: changed (not the header that was indexed), corrupt
// (the data would overlap the next member, as in a zip bomb).
std::size_t zip_header_bytes(std::span<const std::uint8_t> bytes, const ZipEntry& entry);

// For who reads a part of a member, which its CRC says nothing of. Throws Fault changed where the header is of other
// data than was indexed, as far as it tells.
void check_zip_data_header(std::span<const std::uint8_t> header, const ZipEntry& entry);

// Unpacks members one after another; keeps its memory between them.
class ZipUnpacker {
public:
    explicit ZipUnpacker(std::size_t kept_bytes);

    // The member's data, checked by its CRC: `packed` itself where it is stored, else valid until the next call.
    // `header` is its local header. Throws Fault: corrupt, or changed where the header is of other data.
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
