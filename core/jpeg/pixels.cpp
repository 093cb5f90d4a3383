#include "jpeg/pixels.hpp"

namespace headrace {

const PixelKernels& pixel_kernels(Level level) {
#if defined(__x86_64__)
    if (level >= Level::avx2) return pixels_avx2;
#endif
    (void)level;
    return pixels_scalar;
}

}  // namespace headrace
