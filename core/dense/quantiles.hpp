// Exact quantiles of a map's valid depths: values are counted, not sampled. They interpolate between order statistics,
// like numpy.quantile and torch.quantile by default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "dense/depth_format.hpp"

namespace headrace {

struct DepthQuantiles {
    double low, high;  // in the batch's unit
};

// Counter of the 16-bit numbers in rows, which passes the rows on.
class DepthCounter final : public RowSink {
public:
    // Rows have `width` numbers each.
    void start(int width, RowSink& sink);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;
    // Throws Fault(corrupt) if no number is valid.
    DepthQuantiles quantiles(const DepthFormat&) const;

private:
    // Neighbours are often equal: with alternating counters, an increment does not wait for the previous one.
    static constexpr int kTables = 2;
    std::vector<std::uint32_t> counts_;
    std::size_t width_ = 0;
    RowSink* sink_ = nullptr;
};

// Computes quantiles of floats by two counting passes for each required order statistic. Throws Fault(corrupt) if no
// number is valid.
DepthQuantiles quantiles_of(std::span<const float> numbers, const DepthFormat&);

}  // namespace headrace
