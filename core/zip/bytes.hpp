// Little-endian numbers of zip headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::zip {

// The number at `at` must be within `bytes`.
template <typename Bytes>
std::uint32_t u16(const Bytes& bytes, std::size_t at) {
    return static_cast<std::uint8_t>(bytes[at]) | std::uint32_t{static_cast<std::uint8_t>(bytes[at + 1])} << 8;
}

template <typename Bytes>
std::uint32_t u32(const Bytes& bytes, std::size_t at) {
    return u16(bytes, at) | u16(bytes, at + 2) << 16;
}

template <typename Bytes>
std::uint64_t u64(const Bytes& bytes, std::size_t at) {
    return u32(bytes, at) | std::uint64_t{u32(bytes, at + 4)} << 32;
}

}  // namespace headrace::zip
