// Scalar and vector tables, by Pixels. Only row_filters() selects between them.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "png/unfilter.hpp"

namespace headrace::png {

using UnfilterTable = std::array<RowFilters, pixels_kinds>;

// Filters<Gather>::table, for every kind of Pixels.
template <template <Gather> class Filters>
constexpr UnfilterTable unfilter_table() {
    return []<std::size_t... Kind>(std::index_sequence<Kind...>) {
        return UnfilterTable{Filters<gather_of(static_cast<Pixels>(Kind))>::table...};
    }(std::make_index_sequence<pixels_kinds>{});
}

extern const UnfilterTable unfilter_scalar;
extern const UnfilterTable unfilter_vectors;

}  // namespace headrace::png
