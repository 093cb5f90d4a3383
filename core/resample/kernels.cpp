#include "resample/kernels.hpp"

#include "resample/levels.hpp"

namespace headrace {

namespace {

#define HEADRACE_KERNELS(level)                                                                                        \
    Kernels {                                                                                                          \
        level::horizontal, level::vertical, level::vertical_exact, level::pack_rgb, level::split_rgb, level::to_float, \
            level::to_half, level::to_bfloat16                                                                         \
    }

const Kernels kTable[] = {
    HEADRACE_KERNELS(scalar),
    {portable::horizontal, portable::vertical, scalar::vertical_exact, scalar::pack_rgb, scalar::split_rgb,
     scalar::to_float, scalar::to_half, scalar::to_bfloat16},
#if defined(__x86_64__)
    HEADRACE_KERNELS(avx2),
    HEADRACE_KERNELS(avx512),
#endif
};

}  // namespace

const Kernels& kernels(Level level) { return kTable[static_cast<int>(level)]; }

}  // namespace headrace
