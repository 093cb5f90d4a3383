#include "cache/layout.hpp"

#include <libdeflate.h>

namespace headrace {

std::uint32_t check_of(const CacheHeader& header) {
    CacheHeader bare = header;
    bare.check = 0;
    return libdeflate_crc32(0, &bare, sizeof bare);
}

std::uint32_t check_of(const CacheTail& tail) { return ~libdeflate_crc32(0, &tail.next, sizeof tail.next); }

std::uint32_t check_of(std::uint64_t index, const CacheEntry& entry) {
    return libdeflate_crc32(libdeflate_crc32(0, &index, sizeof index), &entry, offsetof(CacheEntry, check));
}

}  // namespace headrace
