#include "augment/augment_kernels_of.hpp"

namespace headrace {
namespace {
#include "augment/augment_kernels.inl"
}  // namespace

const AugmentKernels& augment_kernels_scalar() { return kTable; }

}  // namespace headrace
