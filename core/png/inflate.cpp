#include "png/inflate.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "common/fault.hpp"

namespace headrace::png {
namespace {

// Deflate's best case: 258 bytes for two bits.
constexpr std::size_t largest_ratio = 1032;

// libdeflate inflates front to back and stops at the first piece that does not fit; the largest piece is a stored
// block. With this much room after the wanted rows, the piece that does not fit cannot affect them. This relies on
// libdeflate's implementation, not on a guarantee: tests/test_png.py compares windows with full decodes.
constexpr std::size_t largest_piece = 65'536;

std::string counts(std::size_t total, std::size_t packed) {
    return "expected " + std::to_string(total) + " bytes of rows from " + std::to_string(packed) + " bytes of IDAT";
}

[[noreturn]] void corrupt(const std::string& why) { throw Fault(Code::corrupt, "PNG: " + why); }

}  // namespace

void Inflater::Free::operator()(libdeflate_decompressor* decompressor) const {
    libdeflate_free_decompressor(decompressor);
}

Inflater::Inflater() : decompressor_(libdeflate_alloc_decompressor()) {
    if (decompressor_ == nullptr) throw std::bad_alloc();
}

std::span<const std::uint8_t> Inflater::joined(const Chunks& chunks) {
    if (chunks.data.size() == 1) return chunks.data.front();
    std::uint8_t* const begin = packed_.reserve(chunks.data_bytes);
    std::uint8_t* end = begin;
    for (const auto piece : chunks.data) end = std::copy(piece.begin(), piece.end(), end);
    return {begin, end};
}

void check_can_hold(const Chunks& chunks, std::size_t total) {
    if (total / largest_ratio <= chunks.data_bytes) return;
    corrupt(counts(total, chunks.data_bytes) + ", more than they can hold: the file is cut short");
}

const std::uint8_t* Inflater::inflate(const Chunks& chunks, std::size_t wanted, std::size_t total) {
    const auto packed = joined(chunks);
    const std::size_t room = std::min(total, wanted + largest_piece);
    std::uint8_t* const rows = rows_.reserve(room + padding_bytes);
    std::memset(rows + room, 0, padding_bytes);
    switch (libdeflate_zlib_decompress(decompressor_.get(), packed.data(), packed.size(), rows, room, nullptr)) {
        case LIBDEFLATE_SUCCESS:
            if (room == total) return rows;
            [[fallthrough]];
        case LIBDEFLATE_SHORT_OUTPUT:
            corrupt(counts(total, packed.size()) + ", got fewer: the file is cut short");
        case LIBDEFLATE_INSUFFICIENT_SPACE:
            if (room < total) return rows;
            corrupt(counts(total, packed.size()) + ", got more: the file is damaged");
        default:
            corrupt(counts(total, packed.size()) + ", got a damaged zlib stream");
    }
}

}  // namespace headrace::png
