// The next bits of a segment, kept in a register.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headrace {

struct BitReader {
    std::uint64_t bits = 0;  // left-aligned; what lies beyond `count` is part of what follows, or zero
    int count = 0;
    const std::uint8_t* next = nullptr;

    // At least 56 bits. Reads 8 bytes, whatever is there: without a branch it costs less than any test would save.
    void refill() {
        std::uint64_t bytes;
        std::memcpy(&bytes, next, 8);
        if constexpr (std::endian::native == std::endian::little) bytes = __builtin_bswap64(bytes);
        bits |= bytes >> count;
        next += (63 - count) >> 3;
        count |= 56;
    }
    // `length` is below 64.
    void consume(int length) {
        bits <<= length;
        count -= length;
    }
    // Unread bits up to `end`; negative where more have been read than there are.
    std::ptrdiff_t left(const std::uint8_t* end) const { return 8 * (end - next) + count; }
};

}  // namespace headrace
