// Parser of 512-byte tar header blocks: ustar, GNU and v7. PAX records are in pax.hpp.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

constexpr std::int64_t tar_block_bytes = 512;

enum class TarKind : std::uint8_t {
    file,
    directory,
    link,
    device,
    sparse,      // GNU type 'S': the data is packed, so its bytes are not the file's
    long_name,   // GNU 'L': the data is the next member's name
    long_link,   // GNU 'K': the data is the next member's link target
    pax,         // 'x': records about the next member
    pax_global,  // 'g': records about all later members
    unknown,
};

struct TarHeader {
    TarKind kind = TarKind::unknown;
    char type = '0';                // the type flag, v7's mapped to ustar's: '0' for a file, '5' for a folder
    std::int64_t size = 0;          // the size field; links, directories and devices carry no data
    std::string name;               // prefix and name joined, verbatim
    std::string link;               // target of a link
    std::uint32_t check = 0;        // tar_header_check of the block
    bool sparse_continued = false;  // more blocks of a GNU sparse map follow before the data
};

// True for a block of zeros: the end mark is two zero blocks.
bool is_zero_block(const std::uint8_t* block);

// True if another block of a GNU sparse map follows this continuation block.
bool sparse_map_continues(const std::uint8_t* block);

// Parses one header block. Throws Fault(corrupt) if the checksum or the size is invalid.
TarHeader read_tar_header(const std::uint8_t* block);

// Identity of the header block that directly precedes a member's data: 32-bit FNV-1a (Fowler, Noll, Vo) over its
// name, size and prefix fields. It is stored in the index, and a reader compares it to detect a changed tar.
std::uint32_t tar_header_check(const std::uint8_t block[512]);

}  // namespace headrace
