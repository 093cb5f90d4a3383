#include "tar/header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "common/fault.hpp"

namespace headrace {
namespace {

struct Slice {
    std::size_t at, length;
};

// Layout of POSIX ustar (IEEE Std 1003.1, pax) with GNU's sparse flags.
constexpr Slice name_field{0, 100}, size_field{124, 12}, checksum_field{148, 8}, link_field{157, 100},
    prefix_field{345, 155};
constexpr std::size_t type_at = 156, magic_at = 257, sparse_flag_at = 482, sparse_map_flag_at = 504;

constexpr std::uint32_t fnv_prime = 16777619u;
constexpr auto fnv_powers = [] {
    std::array<std::uint32_t, prefix_field.length + 1> powers{1};
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * fnv_prime;
    return powers;
}();

std::string text_of(const std::uint8_t* block, Slice field) {
    const char* start = reinterpret_cast<const char*>(block) + field.at;
    return {start, strnlen(start, field.length)};
}

std::int64_t octal(const std::uint8_t* block, Slice field, const char* what) {
    const std::string text = text_of(block, field);
    std::size_t at = text.find_first_not_of(' ');
    std::int64_t value = 0;
    for (; at < text.size() && text[at] != ' '; ++at) {
        if (text[at] < '0' || text[at] > '7')
            throw Fault(Code::corrupt, std::string("expected an octal ") + what + ", got '" + text + "'");
        value = value * 8 + (text[at] - '0');  // 12 digits at most: no overflow
    }
    return value;
}

// GNU's format for numbers too large for octal: a set top bit, then a big-endian two's complement number.
std::int64_t base256(const std::uint8_t* bytes, std::size_t length) {
    if (bytes[0] & 0x40) throw Fault(Code::corrupt, "expected a size of 0 or more, got a negative one");
    std::uint64_t value = bytes[0] & 0x3f;
    for (std::size_t i = 1; i < length; ++i) {
        if (value >> 55) throw Fault(Code::corrupt, "expected a size below 2**63 bytes, got a larger one");
        value = value << 8 | bytes[i];
    }
    return static_cast<std::int64_t>(value);
}

std::int64_t size_of(const std::uint8_t* block) {
    const std::uint8_t* field = block + size_field.at;
    return field[0] & 0x80 ? base256(field, size_field.length) : octal(block, size_field, "size");
}

// Old tars summed signed bytes, so both sums are accepted, as in every other reader.
bool checksum_holds(const std::uint8_t* block) {
    std::int32_t sum = 0, signed_sum = 0;
    for (std::size_t i = 0; i < tar_block_bytes; ++i) {
        sum += block[i];
        signed_sum += static_cast<std::int8_t>(block[i]);
    }
    // The checksum field counts as spaces. Corrected afterwards, so that the main loop can be vectorized.
    for (std::size_t i = checksum_field.at; i < checksum_field.at + checksum_field.length; ++i) {
        sum += ' ' - block[i];
        signed_sum += ' ' - static_cast<std::int8_t>(block[i]);
    }
    const std::int64_t kept = octal(block, checksum_field, "checksum");
    return kept == sum || kept == signed_sum;
}

TarKind kind_of(char type, const std::string& name) {
    switch (type) {
        case '\0':
            return name.ends_with('/') ? TarKind::directory : TarKind::file;  // v7 marks folders by the slash
        case '0':
        case '7':
            return TarKind::file;
        case '1':
        case '2':
            return TarKind::link;
        case '3':
        case '4':
        case '6':
            return TarKind::device;
        case '5':
            return TarKind::directory;
        case 'S':
            return TarKind::sparse;
        case 'L':
            return TarKind::long_name;
        case 'K':
            return TarKind::long_link;
        case 'x':
        case 'X':
            return TarKind::pax;
        case 'g':
            return TarKind::pax_global;
        default:
            return TarKind::unknown;
    }
}

}  // namespace

bool is_zero_block(const std::uint8_t* block) {
    return std::all_of(block, block + tar_block_bytes, [](std::uint8_t byte) { return byte == 0; });
}

bool sparse_map_continues(const std::uint8_t* block) { return block[sparse_map_flag_at] != 0; }

TarHeader read_tar_header(const std::uint8_t* block) {
    if (!checksum_holds(block)) throw Fault(Code::corrupt, "its checksum does not match its bytes");
    TarHeader header;
    header.name = text_of(block, name_field);
    // With GNU's magic ("ustar  "), the field of POSIX's prefix holds times.
    if (std::memcmp(block + magic_at, "ustar\0", 6) == 0) {
        const std::string prefix = text_of(block, prefix_field);
        if (!prefix.empty()) header.name = prefix + "/" + header.name;
    }
    header.kind = kind_of(static_cast<char>(block[type_at]), header.name);
    header.type = static_cast<char>(block[type_at]);
    if (header.type == '\0') header.type = header.kind == TarKind::directory ? '5' : '0';
    if (header.kind == TarKind::link) header.link = text_of(block, link_field);
    header.size = size_of(block);
    header.check = tar_header_check(block);
    header.sparse_continued = header.kind == TarKind::sparse && block[sparse_flag_at] != 0;
    return header;
}

std::uint32_t tar_header_check(const std::uint8_t block[512]) {
    std::uint32_t hash = 2166136261u;
    for (const Slice field : {name_field, size_field, prefix_field}) {
        std::size_t used = field.length;
        while (used > 0 && block[field.at + used - 1] == 0) --used;
        for (std::size_t i = field.at; i < field.at + used; ++i) hash = (hash ^ block[i]) * fnv_prime;
        hash *= fnv_powers[field.length - used];  // the zeros that fill most of a field
    }
    return hash;
}

}  // namespace headrace
