// Reader of a segment's next bits, in a register.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headrace {

struct BitReader {
    std::uint64_t bits = 0;  // left-aligned; bits beyond `count` are part of the following bits, or zero
    int count = 0;
    const std::uint8_t* next = nullptr;

    // Refills to at least 56 bits. Always reads 8 bytes: that costs less than any branch would save.
    void refill() {
        std::uint64_t bytes;
        std::memcpy(&bytes, next, 8);
        if constexpr (std::endian::native == std::endian::little) bytes = __builtin_bswap64(bytes);
        bits |= bytes >> count;
        next += (63 - count) >> 3;
        count |= 56;
    }
    // Drops `length` bits, below 64.
    void consume(int length) {
        bits <<= length;
        count -= length;
    }
    // Unread bits up to `end`; negative after reading past the end.
    std::ptrdiff_t left(const std::uint8_t* end) const { return 8 * (end - next) + count; }
};

}  // namespace headrace
