#include "zip/member.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

#include "common/fault.hpp"
#include "zip/bytes.hpp"

namespace headrace {
namespace {

using zip::u16;
using zip::u32;

constexpr std::uint32_t kStored = 0, kDeflated = 8;
constexpr std::uint32_t kEncrypted = 0x1, kSizesFollow = 0x8, kPatch = 0x20, kStronglyEncrypted = 0x40;
constexpr std::size_t kFlagsAt = 6, kMethodAt = 8, kCrcAt = 14, kNameBytesAt = 26, kExtraBytesAt = 28;
constexpr std::uint8_t kSignature[] = {'P', 'K', 3, 4};
constexpr std::int64_t kLargestRatio = 1032;  // deflate's best case: 258 bytes for two bits

std::string hex(std::uint32_t value) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", value);
    return text;
}

[[noreturn]] void corrupt(const std::string& why) { throw Fault(Code::corrupt, "zip: " + why); }
[[noreturn]] void overlaps() { corrupt("the member overlaps the next one, as in a zip bomb"); }
[[noreturn]] void unsupported(const std::string& why) { throw Fault(Code::unsupported, "zip: " + why); }

// A header with a CRC other than the indexed one belongs to a zip with the same names and other data.
bool is_of_other_data(std::span<const std::uint8_t> header, const ZipEntry& entry) {
    return !(u16(header, kFlagsAt) & kSizesFollow) && u32(header, kCrcAt) != entry.crc;
}

}  // namespace

bool is_stored(const ZipEntry& entry) { return entry.method == kStored; }

void check_zip_data_header(std::span<const std::uint8_t> header, const ZipEntry& entry) {
    if (!is_of_other_data(header, entry)) return;
    throw Fault(Code::changed, "the local header is of other data than was indexed; index it again");
}

void check_zip_entry(const ZipEntry& entry, std::int64_t max_bytes) {
    if (entry.flags & (kEncrypted | kStronglyEncrypted))
        unsupported("the member is encrypted; unpack it, and pack it again without a password");
    if (entry.flags & kPatch) unsupported("the member is a patch of another file");
    if (entry.method != kStored && entry.method != kDeflated) {
        unsupported("the member is compressed by method " + std::to_string(entry.method) +
                    ", expected 0 (stored) or 8 (deflated); pack it again");
    }
    const std::int64_t largest = std::max(entry.size, entry.packed);
    if (largest > max_bytes) {
        throw Fault(Code::limit,
                    std::to_string(largest) + " bytes, more than max_file_bytes=" + std::to_string(max_bytes));
    }
    if (entry.packed < 0 || entry.size < 0) corrupt("the member has a size below 0");
    if (entry.room - static_cast<std::int64_t>(kZipHeaderBytes) < entry.packed) overlaps();
    if (entry.method == kStored && entry.packed != entry.size) {
        corrupt("expected " + std::to_string(entry.size) + " bytes stored, got " + std::to_string(entry.packed));
    }
    if (entry.size / kLargestRatio > entry.packed) {
        corrupt("expected " + std::to_string(entry.size) + " bytes from " + std::to_string(entry.packed) +
                ", more than they can hold");
    }
}

std::uint32_t zip_header_check(std::uint32_t method, std::span<const std::uint8_t> name) {
    return libdeflate_crc32(method, name.data(), name.size());
}

std::size_t zip_header_bytes(std::span<const std::uint8_t> bytes, const ZipEntry& entry) {
    if (bytes.size() < kZipHeaderBytes) return kZipHeaderBytes;
    const bool signed_so = std::ranges::equal(bytes.first(sizeof kSignature), kSignature);
    const std::size_t named = kZipHeaderBytes + u16(bytes, kNameBytesAt), total = named + u16(bytes, kExtraBytesAt);
    if (signed_so && bytes.size() < named) return total;
    if (!signed_so || zip_header_check(u16(bytes, kMethodAt),
                                       bytes.subspan(kZipHeaderBytes, named - kZipHeaderBytes)) != entry.check) {
        throw Fault(Code::changed, "the local header is not the one that was indexed; index it again");
    }
    if (static_cast<std::int64_t>(total) > entry.room - entry.packed) overlaps();
    return total;
}

void ZipUnpacker::Free::operator()(libdeflate_decompressor* decompressor) const {
    libdeflate_free_decompressor(decompressor);
}

ZipUnpacker::ZipUnpacker(std::size_t kept_bytes) : decompressor_(libdeflate_alloc_decompressor()), data_(kept_bytes) {
    if (decompressor_ == nullptr) throw std::bad_alloc();
}

std::span<const std::uint8_t> ZipUnpacker::unpack(std::span<const std::uint8_t> header,
                                                  std::span<const std::uint8_t> packed, const ZipEntry& entry) {
    try {
        const auto data = entry.method == kStored ? packed : inflate(packed, entry);
        const std::uint32_t crc = libdeflate_crc32(0, data.data(), data.size());
        if (crc != entry.crc) corrupt("expected bytes with CRC " + hex(entry.crc) + ", got " + hex(crc));
        return data;
    } catch (const Fault&) {
        check_zip_data_header(header, entry);
        throw;
    }
}

std::span<const std::uint8_t> ZipUnpacker::inflate(std::span<const std::uint8_t> packed, const ZipEntry& entry) {
    const auto size = static_cast<std::size_t>(entry.size);
    std::uint8_t* const data = data_.reserve(std::max<std::size_t>(1, size));
    switch (libdeflate_deflate_decompress(decompressor_.get(), packed.data(), packed.size(), data, size, nullptr)) {
        case LIBDEFLATE_SUCCESS:
            return {data, size};
        case LIBDEFLATE_SHORT_OUTPUT:
            corrupt("expected " + std::to_string(entry.size) + " bytes, got fewer");
        case LIBDEFLATE_INSUFFICIENT_SPACE:
            corrupt("expected " + std::to_string(entry.size) + " bytes, got more");
        default:
            corrupt("its compressed data is damaged");
    }
}

}  // namespace headrace
