// Vectors of 16 bytes in the notation that GCC and Clang share: one source that becomes NEON on aarch64, SSE2 on
// x86-64, and plain code elsewhere. https://gcc.gnu.org/onlinedocs/gcc/Vector-Extensions.html
//
// Whoever includes this keeps to additions, 16-bit products, shifts by a constant and lanes moved by a constant
// pattern: each of these is an instruction or two on every machine. Wider products and conversions between widths
// are not (GCC 12 takes vectors apart lane by lane for them).
#pragma once

#include <cstdint>
#include <cstring>

namespace headrace {
// Unnamed: a function emitted with one file's instruction set must not replace its twin in a file with another.
namespace {

using u8x16 [[gnu::vector_size(16)]] = std::uint8_t;
using u16x8 [[gnu::vector_size(16)]] = std::uint16_t;
using u64x2 [[gnu::vector_size(16)]] = std::uint64_t;

template <class Vector>
inline Vector load(const void* from) {
    Vector v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class Vector>
inline void store(void* to, Vector v) {
    std::memcpy(to, &v, sizeof v);
}

// The same 16 bytes as lanes of another width.
template <class To, class From>
inline To as(From v) {
    return reinterpret_cast<To>(v);
}

// The lanes of a, then those of b, by their numbers.
template <int... At, class Vector>
inline Vector pick(Vector a, Vector b) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, At...);
#else
    return __builtin_shuffle(a, b, Vector{At...});  // GCC before 12
#endif
}

// Bytes 0 to 7, or 8 to 15, as 16-bit lanes.
inline u16x8 low_bytes(u8x16 v) {
    return as<u16x8>(pick<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(v, u8x16{}));
}
inline u16x8 high_bytes(u8x16 v) {
    return as<u16x8>(pick<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(v, u8x16{}));
}

// 16-bit lanes below 256 as bytes.
inline u8x16 bytes_of(u16x8 low, u16x8 high) {
    return pick<0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30>(as<u8x16>(low), as<u8x16>(high));
}

// The lower, and the upper, halves of two vectors side by side.
inline u16x8 low_halves(u16x8 a, u16x8 b) { return as<u16x8>(pick<0, 2>(as<u64x2>(a), as<u64x2>(b))); }
inline u16x8 high_halves(u16x8 a, u16x8 b) { return as<u16x8>(pick<1, 3>(as<u64x2>(a), as<u64x2>(b))); }

}  // namespace
}  // namespace headrace
