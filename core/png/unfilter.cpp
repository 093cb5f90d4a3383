#include "png/unfilter.hpp"

#include "png/unfilter_tables.hpp"

namespace headrace::png {

const RowFilters& row_filters(Pixels pixels, Level level) {
    const auto kind = static_cast<std::size_t>(pixels);
#if defined(__x86_64__)
    // Filters need four pixels at a time at most: SSE4.1 serves every level above scalar (AVX2 gained nothing).
    if (level >= Level::avx2) return unfilter_sse41[kind];
#endif
    (void)level;
    return unfilter_scalar[kind];
}

}  // namespace headrace::png
