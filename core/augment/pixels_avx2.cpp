#if defined(__x86_64__)
#include <immintrin.h>

#include "augment/pixel_kernels_of.hpp"
#include "augment/warp_kernels.hpp"

namespace headrace {
namespace {
#include "augment/pixel_kernels.inl"
#include "augment/warp_kernels.inl"
}  // namespace

const PixelKernels& pixel_kernels_avx2() { return kTable; }
const WarpKernels& warp_kernels_avx2() { return warping::kTable; }

}  // namespace headrace

#endif
