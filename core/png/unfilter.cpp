#include "png/unfilter.hpp"

#include "png/unfilter_tables.hpp"

namespace headrace {

Level best_level() {
#if defined(__x86_64__)
    static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
    return avx2 ? Level::avx2 : Level::scalar;
#else
    return Level::scalar;
#endif
}

const RowFilters& row_filters(Pixels pixels, Level level) {
    const auto kind = static_cast<std::size_t>(pixels);
#if defined(__x86_64__)
    if (level == Level::avx2) return unfilter_avx2[kind];
#endif
    (void)level;
    return unfilter_scalar[kind];
}

}  // namespace headrace
