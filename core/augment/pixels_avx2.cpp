#if defined(__x86_64__)
#include <immintrin.h>

#include "augment/augment_kernels_of.hpp"
#include "augment/warp_kernels.hpp"

namespace headrace {
namespace {
#include "augment/augment_kernels.inl"
#include "augment/warp_kernels.inl"
}  // namespace

const AugmentKernels& augment_kernels_avx2() { return kTable; }
const WarpKernels& warp_kernels_avx2() { return warping::kTable; }

}  // namespace headrace

#endif
