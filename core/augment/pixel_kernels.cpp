#include "augment/pixel_kernels.hpp"

#include "augment/pixel_kernels_of.hpp"

namespace headrace {

const PixelKernels& pixel_kernels(Level level) {
    switch (level) {
#if defined(__x86_64__)
        case Level::avx512:
            return pixel_kernels_avx512();
        case Level::avx2:
            return pixel_kernels_avx2();
#endif
        case Level::portable:
            return pixel_kernels_portable();
        default:
            return pixel_kernels_scalar();
    }
}

}  // namespace headrace
