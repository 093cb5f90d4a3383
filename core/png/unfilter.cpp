#include "png/unfilter.hpp"

#include "png/unfilter_tables.hpp"

namespace headrace::png {

namespace {

// Vectors pay off only with an instruction for arbitrary byte shuffles: with SSE2 alone, plain loops are faster.
#if defined(__x86_64__)
constexpr Level in_vectors = Level::avx2;
#else
constexpr Level in_vectors = Level::portable;
#endif

}  // namespace

const RowFilters& row_filters(Pixels pixels, Level level) {
    return (level >= in_vectors ? unfilter_vectors : unfilter_scalar)[static_cast<std::size_t>(pixels)];
}

}  // namespace headrace::png
