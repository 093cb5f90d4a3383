// Filters as defined by the standard: for CPUs without the vector levels, and as their reference in tests.
#include <cstdlib>

#include "png/unfilter_tables.hpp"

namespace headrace::png {
namespace {

struct Neighbours {
    int left, above, corner;
};

int none(Neighbours) { return 0; }
int sub(Neighbours n) { return n.left; }
int up(Neighbours n) { return n.above; }
int average(Neighbours n) { return (n.left + n.above) / 2; }

int paeth(Neighbours n) {
    const int estimate = n.left + n.above - n.corner;
    const int left = std::abs(estimate - n.left);
    const int above = std::abs(estimate - n.above);
    const int corner = std::abs(estimate - n.corner);
    if (left <= above && left <= corner) return n.left;
    return above <= corner ? n.above : n.corner;
}

template <Gather G, int (*predict)(Neighbours)>
void unfilter_row(const std::uint8_t* raw, const std::uint8_t* above, std::uint8_t* out, std::size_t pixels) {
    std::array<Neighbours, G.lanes> seen{};
    for (std::size_t i = 0; i < pixels; ++i, raw += G.step, above += G.lanes, out += G.lanes) {
        for (int lane = 0; lane < G.lanes; ++lane) {
            Neighbours& n = seen[lane];
            n.above = above[lane];
            const int from = G.from[lane];
            out[lane] = from == no_byte ? 0 : static_cast<std::uint8_t>(raw[from] + predict(n));
            n.left = out[lane];
            n.corner = n.above;
        }
    }
}

template <Gather G>
struct Filters {
    static constexpr RowFilters table = {{unfilter_row<G, none>, unfilter_row<G, sub>, unfilter_row<G, up>,
                                          unfilter_row<G, average>, unfilter_row<G, paeth>},
                                         {}};
};

}  // namespace

constinit const UnfilterTable unfilter_scalar = unfilter_table<Filters>();

}  // namespace headrace::png
