#include "augment/pixel_kernels.hpp"

#include "augment/pixel_kernels_of.hpp"

namespace headrace {

const PixelKernels& pixel_kernels(Level level) {
    switch (level) {
#if defined(__x86_64__)
        case Level::avx512:
            // Processors with AVX-512 alone (Skylake, Cascade Lake) run at AVX2's level.
            if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni"))
                return pixel_kernels_avx512();
            [[fallthrough]];
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
