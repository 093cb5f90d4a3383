#include "augment/augment_kernels_of.hpp"
#include "augment/warp_kernels.hpp"

namespace headrace {
namespace {
#include "augment/augment_kernels.inl"
#include "augment/warp_kernels.inl"
}  // namespace

const AugmentKernels& augment_kernels_scalar() { return kTable; }
const WarpKernels& warp_kernels_scalar() { return warping::kTable; }

}  // namespace headrace
