#include "augment/augment_kernels.hpp"

#include "augment/augment_kernels_of.hpp"

namespace headrace {

const AugmentKernels& augment_kernels(Level level) {
    switch (level) {
#if defined(__x86_64__)
        case Level::avx512:
            return augment_kernels_avx512();
        case Level::avx2:
            return augment_kernels_avx2();
#endif
        case Level::portable:
            return augment_kernels_portable();
        default:
            return augment_kernels_scalar();
    }
}

}  // namespace headrace
