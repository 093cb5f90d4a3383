#include "resample/kernels.hpp"

#include <stdexcept>
#include <string>

#include "resample/levels.hpp"

namespace headrace {

namespace {

#define HEADRACE_KERNELS(level) \
    Kernels { level::horizontal, level::vertical, level::pack_rgb, level::to_float, level::to_half, level::to_bfloat16 }

#if defined(__x86_64__)
const Kernels kTable[] = {HEADRACE_KERNELS(scalar), HEADRACE_KERNELS(avx2), HEADRACE_KERNELS(avx512)};

bool has(Level level) {
    __builtin_cpu_init();
    const bool two = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (level == Level::avx512) {
        return two && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    }
    return level == Level::scalar || two;
}
#else
const Kernels kTable[] = {HEADRACE_KERNELS(scalar)};

bool has(Level level) { return level == Level::scalar; }
#endif

constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512"};

}  // namespace

Level best_level() {
    static const Level best = has(Level::avx512) ? Level::avx512 : has(Level::avx2) ? Level::avx2 : Level::scalar;
    return best;
}

const Kernels& kernels(Level level) {
    if (!has(level)) {
        throw std::invalid_argument("this processor has no " + std::string(level_name(level)) +
                                    "; levels up to " + std::string(level_name(best_level())) + " can be forced");
    }
    return kTable[static_cast<int>(level)];
}

Level parse_level(std::string_view name) {
    if (name == "best") return best_level();
    for (int i = 0; i < 3; ++i) {
        if (name == kNames[i]) return static_cast<Level>(i);
    }
    throw std::invalid_argument("expected a level of scalar, avx2, avx512 or best, got " + std::string(name));
}

std::string_view level_name(Level level) { return kNames[static_cast<int>(level)]; }

}  // namespace headrace
