#if defined(__x86_64__)
#include "augment/pixel_kernels_of.hpp"

namespace headrace {
namespace {
#include "augment/pixel_kernels.inl"
}  // namespace

const PixelKernels& pixel_kernels_avx512() { return kTable; }

}  // namespace headrace

#endif
