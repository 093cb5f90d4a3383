#include "augment/augment_kernels.hpp"

#include "augment/augment_kernels_of.hpp"

namespace headrace {

Level augment_level(Level level) {
#if defined(__x86_64__)
    const bool permutes = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
    if (level == Level::avx512 && !permutes) return Level::avx2;
#endif
    return level;
}

const AugmentKernels& augment_kernels(Level level) {
    switch (augment_level(level)) {
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
