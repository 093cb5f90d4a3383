// Declarations of each level's set of kernels, documented in kernels.hpp. Private to this folder.
#pragma once

#include "resample/kernels.hpp"

#define HEADRACE_KERNEL_SET                                                                             \
    void horizontal(const std::uint8_t*, std::size_t, int, const PackedTaps&, std::int16_t* const*);    \
    void vertical(const std::int16_t* const*, const std::int16_t*, int, int, std::uint8_t*);            \
    void vertical_exact(const std::int16_t* const*, const std::int16_t*, int, int, int, std::uint8_t*); \
    void pack_rgb(const std::uint8_t*, int, std::uint8_t*);                                             \
    void split_rgb(const std::uint8_t*, int, std::uint8_t* const*);                                     \
    void to_float(const std::uint8_t*, int, const float*, const float*, float*);                        \
    void to_half(const float*, int, std::uint16_t*);                                                    \
    void to_bfloat16(const float*, int, std::uint16_t*);

namespace headrace::scalar {
HEADRACE_KERNEL_SET
}
// Compilers vectorize the scalar twin's other kernels.
namespace headrace::portable {
void horizontal(const std::uint8_t*, std::size_t, int, const PackedTaps&, std::int16_t* const*);
void vertical(const std::int16_t* const*, const std::int16_t*, int, int, std::uint8_t*);
}  // namespace headrace::portable
namespace headrace::avx2 {
HEADRACE_KERNEL_SET
}
namespace headrace::avx512 {
HEADRACE_KERNEL_SET
}
