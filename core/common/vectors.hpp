// 16-byte vectors in the vector extensions of GCC and Clang: one source that compiles to NEON on aarch64, SSE2 on
// x86-64, and scalar code elsewhere. https://gcc.gnu.org/onlinedocs/gcc/Vector-Extensions.html
//
// Code that uses it is limited to additions, 16-bit products, shifts by a constant and shuffles by a constant pattern,
// which are one or two instructions on every architecture. Wider products and conversions between widths are not (GCC
// 12 compiles them lane by lane).
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace headrace {
// Anonymous namespace: a function compiled for one file's instruction set must not replace its twin in another file.
namespace {

using u8x16 [[gnu::vector_size(16)]] = std::uint8_t;
using u16x8 [[gnu::vector_size(16)]] = std::uint16_t;
using i16x8 [[gnu::vector_size(16)]] = std::int16_t;

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

// Reinterprets the 16 bytes as lanes of another width.
template <class To, class From>
inline To as(From v) {
    return reinterpret_cast<To>(v);
}

// Selects bytes by index: 0 to 15 from a, 16 to 31 from b.
template <int... At>
inline u8x16 pick(u8x16 a, u8x16 b) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, At...);
#else
    return __builtin_shuffle(a, b, u8x16{At...});  // GCC before 12
#endif
}

// Shuffle pattern: an index for each byte of the result.
struct Pattern {
    int at[16];
};

template <Pattern From>
inline u8x16 pick_by(u8x16 a, u8x16 b) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return pick<From.at[I]...>(a, b);
    }(std::make_index_sequence<16>{});
}

// Selects bytes of one vector; indices past its end select zero.
template <Pattern From>
inline u8x16 pick_or_zero(u8x16 v) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
        const u8x16 kept = {(From.at[I] < 16 ? std::uint8_t{255} : std::uint8_t{0})...};
        return pick<(From.at[I] % 16)...>(v, v) & kept;
    }(std::make_index_sequence<16>{});
}

constexpr Pattern consecutive(int first) {
    Pattern pattern{};
    for (int i = 0; i < 16; ++i) pattern.at[i] = first + i;
    return pattern;
}

// Repeats the `count` bytes from `first` on.
constexpr Pattern repeated(int first, int count) {
    Pattern pattern{};
    for (int i = 0; i < 16; ++i) pattern.at[i] = first + i % count;
    return pattern;
}

constexpr Pattern evens() {
    Pattern pattern{};
    for (int i = 0; i < 16; ++i) pattern.at[i] = 2 * i;
    return pattern;
}

// Interleaves units of `bytes` bytes from two vectors, starting at unit `first` of each.
constexpr Pattern in_turns(int bytes, int first) {
    Pattern pattern{};
    for (int i = 0; i < 16; ++i) pattern.at[i] = i / bytes % 2 * 16 + (first + i / bytes / 2) * bytes + i % bytes;
    return pattern;
}

// Interleaves the lower, or the higher, halves of two vectors.
template <int Bytes>
inline u8x16 interleave(u8x16 a, u8x16 b) {
    return pick_by<in_turns(Bytes, 0)>(a, b);
}
template <int Bytes>
inline u8x16 interleave_high(u8x16 a, u8x16 b) {
    return pick_by<in_turns(Bytes, 8 / Bytes)>(a, b);
}

// Widens bytes 0 to 7, or 8 to 15, to 16-bit lanes.
inline u16x8 low_bytes(u8x16 v) { return as<u16x8>(interleave<1>(v, u8x16{})); }
inline u16x8 high_bytes(u8x16 v) { return as<u16x8>(interleave_high<1>(v, u8x16{})); }

// Narrows 16-bit lanes below 256 to bytes.
inline u8x16 bytes_of(u16x8 low, u16x8 high) {
#if defined(__SSE2__)
    return as<u8x16>(_mm_packus_epi16(as<__m128i>(low), as<__m128i>(high)));  // the pattern would need a mask for each
#else
    return pick_by<evens()>(as<u8x16>(low), as<u8x16>(high));
#endif
}

// (a + b + 1) / 2: one instruction that the vector extensions cannot express.
inline u8x16 mean_rounded_up(u8x16 a, u8x16 b) {
#if defined(__ARM_NEON)
    return as<u8x16>(vrhaddq_u8(as<uint8x16_t>(a), as<uint8x16_t>(b)));
#elif defined(__SSE2__)
    return as<u8x16>(_mm_avg_epu8(as<__m128i>(a), as<__m128i>(b)));
#else
    return (a | b) - ((a ^ b) >> 1);
#endif
}

}  // namespace
}  // namespace headrace
