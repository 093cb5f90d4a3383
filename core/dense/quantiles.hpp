// The depths that a share of a map's valid ones lie below, exactly: values are counted, not sampled. Between two order
// statistics it interpolates, as numpy.quantile and torch.quantile do by default.
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

// Counts the 16-bit numbers of rows, and hands the rows on.
class DepthCounter final : public RowSink {
public:
    // Rows have `width` numbers each.
    void start(int width, RowSink& sink);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;
    // Throws Fault(corrupt) where none is valid.
    DepthQuantiles quantiles(const DepthFormat&) const;

private:
    // Neighbours often are equal: a counter of their own each lets the next not wait for the last.
    static constexpr int kTables = 2;
    std::vector<std::uint32_t> counts_;
    std::size_t width_ = 0;
    RowSink* sink_ = nullptr;
};

// Of floats, by two passes of counting over each order statistic that is needed. Throws Fault(corrupt) where none is
// valid.
DepthQuantiles quantiles_of(std::span<const float> numbers, const DepthFormat&);

}  // namespace headrace
