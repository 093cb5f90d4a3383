#include "common/level.hpp"

#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace headrace {

namespace {

constexpr std::string_view kNames[kLevels] = {"scalar", "portable", "avx2", "avx512"};

#if defined(__x86_64__)
// Clang before 16 has no __builtin_cpu_supports("f16c").
bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

Level probe() {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !has_f16c()) return Level::portable;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return wide ? Level::avx512 : Level::avx2;
}
#else
Level probe() { return Level::portable; }
#endif

}  // namespace

Level best_level() {
    static const Level best = probe();
    return best;
}

Level parse_level(std::string_view name) {
    if (name == "best") return best_level();
    for (int i = 0; i < kLevels; ++i) {
        if (name != kNames[i]) continue;
        if (i > static_cast<int>(best_level())) {
            throw std::invalid_argument("this processor has no " + std::string(name) + "; its best level is " +
                                        std::string(level_name(best_level())));
        }
        return static_cast<Level>(i);
    }
    throw std::invalid_argument("expected a level of scalar, portable, avx2, avx512 or best, got " + std::string(name));
}

std::string_view level_name(Level level) { return kNames[static_cast<int>(level)]; }

}  // namespace headrace
