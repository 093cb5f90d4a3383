#if defined(__x86_64__)
#include "augment/augment_kernels_of.hpp"

namespace headrace {
namespace {
#include "augment/augment_kernels.inl"
}  // namespace

const AugmentKernels& augment_kernels_avx512() { return kTable; }

}  // namespace headrace

#endif
