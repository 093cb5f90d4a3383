#include "png/chunks.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "common/fault.hpp"
#include "jpeg/orientation.hpp"

namespace headrace::png {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::array<std::uint8_t, 8> signature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::size_t header_bytes = 13;
constexpr std::size_t frame_bytes = 12;  // length, type and CRC around each chunk's data
// Upper bound for any limit: the bytes of more pixels would overflow 64 bits.
constexpr std::int64_t countable_pixels = std::int64_t{1} << 56;
constexpr std::uint32_t largest_field = 0x7fffffff;

[[noreturn]] void corrupt(const std::string& why) { throw Fault(Code::corrupt, "PNG: " + why); }

std::uint32_t big_endian(const std::uint8_t* p) {
    return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

struct Chunk {
    std::string_view type;
    Bytes data;
    std::size_t offset;  // of its length field, for messages

    bool critical() const { return (type[0] & 0x20) == 0; }
    std::string name() const { return std::string(type) + " at byte " + std::to_string(offset); }
};

void check_signature(Bytes file) {
    if (has_signature(file)) return;
    const Bytes first = file.first(std::min(file.size(), signature.size()));
    if (std::equal(first.begin(), first.end(), signature.begin())) {
        corrupt("expected a signature of 8 bytes, got a file of " + std::to_string(file.size()) + ": it is cut short");
    }
    corrupt("expected the signature \\x89PNG\\r\\n\\x1a\\n, got other bytes: the file is not a PNG");
}

// Returns the chunk type. Throws a specific error for each kind of invalid type: only ASCII letters are valid.
std::string_view chunk_type(const std::uint8_t* p, std::size_t offset) {
    const auto letter = [](std::uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
    if (!std::all_of(p, p + 4, letter)) {
        corrupt("expected a chunk type of four letters at byte " + std::to_string(offset + 4) +
                ", got other bytes: the file is damaged");
    }
    return {reinterpret_cast<const char*>(p), 4};
}

void check_crc(const Chunk& chunk) {
    const std::uint8_t* type = chunk.data.data() - 4;
    const std::uint32_t got = libdeflate_crc32(0, type, chunk.data.size() + 4);
    if (got != big_endian(chunk.data.data() + chunk.data.size())) {
        corrupt("the CRC of chunk " + chunk.name() + " does not match its content: the file is damaged");
    }
}

Chunk chunk_at(Bytes file, std::size_t offset) {
    const std::size_t left = file.size() - offset;
    if (left < frame_bytes) {
        corrupt("expected a chunk at byte " + std::to_string(offset) + " before IEND was seen, got " +
                std::to_string(left) + " bytes: the file is cut short");
    }
    const std::uint8_t* p = file.data() + offset;
    const std::uint32_t length = big_endian(p);
    Chunk chunk{chunk_type(p + 4, offset), {}, offset};
    if (length > largest_field || length > left - frame_bytes) {
        corrupt("chunk " + chunk.name() + " declares " + std::to_string(length) + " bytes, " +
                std::to_string(left - frame_bytes) + " are left: the file is cut short or damaged");
    }
    chunk.data = file.subspan(offset + 8, length);
    if (chunk.critical()) check_crc(chunk);
    return chunk;
}

void check_chunk_size(const Chunk& chunk, const Limits& limits) {
    if (chunk.type == "IDAT" || static_cast<std::int64_t>(chunk.data.size()) <= limits.max_png_chunk_bytes) return;
    throw Fault(Code::limit, "PNG: chunk " + chunk.name() + " has " + std::to_string(chunk.data.size()) +
                                 " bytes, more than max_png_chunk_bytes = " +
                                 std::to_string(limits.max_png_chunk_bytes) + ": raise it if the file is trusted");
}

bool depth_suits(int color_type, int depth) {
    switch (color_type) {
        case 0:
            return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
        case 3:
            return depth == 1 || depth == 2 || depth == 4 || depth == 8;
        case 2:
        case 4:
        case 6:
            return depth == 8 || depth == 16;
        default:
            return false;
    }
}

void check_pixels(std::uint32_t width, std::uint32_t height, const Limits& limits) {
    const std::string size = std::to_string(width) + "x" + std::to_string(height);
    if (width == 0 || height == 0 || width > largest_field || height > largest_field) {
        corrupt("expected a width and height of 1 to 2147483647, got " + size);
    }
    const std::int64_t most = std::min(limits.max_pixels, countable_pixels);
    if (std::int64_t{width} * height > most) {
        throw Fault(Code::limit, "PNG: " + size + " is more than max_pixels = " + std::to_string(most) +
                                     ": raise it if the file is trusted");
    }
}

PngInfo parse_header(const Chunk& chunk, const Limits& limits) {
    if (chunk.type != "IHDR" || chunk.data.size() != header_bytes) {
        corrupt("expected IHDR of 13 bytes as the first chunk, got " + std::string(chunk.type) + " of " +
                std::to_string(chunk.data.size()));
    }
    const std::uint8_t* p = chunk.data.data();
    const int depth = p[8];
    const int color = p[9];
    if (!depth_suits(color, depth)) {
        corrupt("colour type " + std::to_string(color) + " with a bit depth of " + std::to_string(depth) +
                " does not exist");
    }
    if (p[10] != 0 || p[11] != 0 || p[12] > 1) {
        corrupt("expected compression 0, filter 0 and interlace 0 or 1, got " + std::to_string(p[10]) + ", " +
                std::to_string(p[11]) + " and " + std::to_string(p[12]));
    }
    check_pixels(big_endian(p), big_endian(p + 4), limits);
    return {static_cast<int>(big_endian(p)),
            static_cast<int>(big_endian(p + 4)),
            depth,
            color,
            p[12] == 1,
            (color & 4) != 0,
            1};
}

void take_palette(const Chunk& chunk, Chunks& chunks) {
    const std::size_t size = chunk.data.size();
    if (!chunks.palette.empty() || !chunks.data.empty()) {
        corrupt("expected one PLTE before IDAT, got a second or late one, " + chunk.name());
    }
    if (size == 0 || size % 3 != 0 || size > 256 * 3) {
        corrupt("expected a PLTE of 1 to 256 RGB triples, got " + std::to_string(size) + " bytes");
    }
    chunks.palette = chunk.data;
}

void take_data(const Chunk& chunk, std::string_view previous, Chunks& chunks) {
    if (!chunks.data.empty() && previous != "IDAT")
        corrupt("expected all IDAT chunks in a row, got other chunks before " + chunk.name());
    chunks.data.push_back(chunk.data);
    chunks.data_bytes += chunk.data.size();
}

[[noreturn]] void refuse(const Chunk& chunk) {
    if (chunk.type == "IHDR") corrupt("expected one IHDR, got a second one, " + chunk.name());
    throw Fault(Code::unsupported, "PNG: chunk " + chunk.name() +
                                       " is marked as critical and is none of IHDR, PLTE, IDAT and IEND: "
                                       "convert the file with the program that wrote it");
}

void check_complete(const PngInfo& info, const Chunks& chunks) {
    if (chunks.data.empty()) corrupt("expected IDAT before IEND, got none: the file holds no pixels");
    if (info.color_type == 3 && chunks.palette.empty()) corrupt("expected PLTE in a palette image, got none");
}

}  // namespace

bool has_signature(Bytes file) {
    return file.size() >= signature.size() && std::equal(signature.begin(), signature.end(), file.begin());
}

PngInfo read_header(Bytes file, const Limits& limits) {
    check_signature(file);
    return parse_header(chunk_at(file, signature.size()), limits);
}

int read_orientation(Bytes file) {
    std::size_t offset = signature.size();
    for (;;) {
        const Chunk chunk = chunk_at(file, offset);
        if (chunk.type == "eXIf") return tiff_orientation(chunk.data);
        offset += frame_bytes + chunk.data.size();
        if (offset + 8 <= file.size() && chunk_type(file.data() + offset + 4, offset) == "IDAT") return 1;
        if (chunk.type == "IEND") return 1;
    }
}

int channels(const PngInfo& info) {
    if (info.color_type == 3) return 1;
    return ((info.color_type & 2) != 0 ? 3 : 1) + (info.has_alpha ? 1 : 0);
}

std::size_t packed_row_bytes(const PngInfo& info, int width) {
    return (static_cast<std::size_t>(width) * channels(info) * info.bit_depth + 7) / 8;
}

void read_chunks(Bytes file, const Limits& limits, Chunks& chunks) {
    chunks.clear();
    PngInfo info = read_header(file, limits);
    info.transparent = info.has_alpha;
    bool has_exif = false;
    std::string_view previous = "IHDR";
    std::size_t offset = signature.size() + frame_bytes + header_bytes;
    while (previous != "IEND") {
        const Chunk chunk = chunk_at(file, offset);
        check_chunk_size(chunk, limits);
        if (chunk.type == "IDAT") {
            take_data(chunk, previous, chunks);
        } else if (chunk.type == "PLTE") {
            take_palette(chunk, chunks);
        } else if (chunk.type == "tRNS") {
            info.transparent = true;
        } else if (chunk.type == "eXIf" && !has_exif && chunks.data.empty()) {
            has_exif = true;
            info.orientation = tiff_orientation(chunk.data);
        } else if (chunk.critical() && chunk.type != "IEND") {
            refuse(chunk);
        }
        previous = chunk.type;
        offset += frame_bytes + chunk.data.size();
    }
    check_complete(info, chunks);
    chunks.info = info;
}

}  // namespace headrace::png
