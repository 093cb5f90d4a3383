// Tables of augment_kernels.hpp, by level.
#pragma once

#include <cstring>

#include "augment/augment_kernels.hpp"

namespace headrace {

const AugmentKernels& augment_kernels_scalar();
const AugmentKernels& augment_kernels_portable();
const AugmentKernels& augment_kernels_avx2();
const AugmentKernels& augment_kernels_avx512();

}  // namespace headrace
