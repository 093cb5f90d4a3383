// The tables of pixel_kernels.hpp, by level.
#pragma once

#include <cstring>

#include "augment/pixel_kernels.hpp"

namespace headrace {

const PixelKernels& pixel_kernels_scalar();
const PixelKernels& pixel_kernels_portable();
const PixelKernels& pixel_kernels_avx2();
const PixelKernels& pixel_kernels_avx512();

}  // namespace headrace
