#include "png/unfilter.hpp"

#include "png/unfilter_tables.hpp"

namespace headrace::png {

namespace {

// Vectors pay where one instruction moves bytes by any pattern: with SSE2 alone they are slower than plain loops.
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
