#include "png/unfilter.hpp"

#include "png/unfilter_tables.hpp"

namespace headrace::png {

Level best_level() {
#if defined(__x86_64__)
    static const bool sse41 = __builtin_cpu_supports("sse4.1") != 0;
    return sse41 ? Level::sse41 : Level::scalar;
#else
    return Level::scalar;
#endif
}

const RowFilters& row_filters(Pixels pixels, Level level) {
    const auto kind = static_cast<std::size_t>(pixels);
#if defined(__x86_64__)
    if (level == Level::sse41) return unfilter_sse41[kind];
#endif
    (void)level;
    return unfilter_scalar[kind];
}

}  // namespace headrace::png
