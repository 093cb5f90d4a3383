#include "dense/quantiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "common/fault.hpp"

namespace headrace {

namespace {

constexpr std::size_t kBins = std::size_t{1} << 16;

// Fractional order statistic: between number `below` (from 0) and the next.
struct Rank {
    std::uint64_t below;
    double share;  // fraction of the way to the next
};

Rank rank_of(double quantile, std::uint64_t count) {
    const double rank = quantile * static_cast<double>(count - 1);
    const double below = std::floor(rank);
    return {static_cast<std::uint64_t>(below), rank - below};
}

// Interpolates the quantiles; `at(k)` returns order statistic k.
template <typename At>
DepthQuantiles interpolate(const DepthFormat& format, std::uint64_t count, std::size_t pixels, At at) {
    if (count == 0) {
        throw Fault(Code::corrupt, "expected at least one valid depth to normalise by, got none of " +
                                       std::to_string(pixels) + " pixels; look at scale=, near=, far= and invalid=");
    }
    const auto between = [&](double quantile) {
        const Rank rank = rank_of(quantile, count);
        const double below = at(rank.below) * format.scale;
        if (rank.share == 0) return below;
        return below + (at(rank.below + 1) * format.scale - below) * rank.share;
    };
    const double low = between(format.low);
    return {low, between(format.high)};
}

// Maps floats to unsigned numbers in the same order.
std::uint32_t rising(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return bits ^ (bits >> 31 ? 0xFFFF'FFFFU : 0x8000'0000U);
}

float back(std::uint32_t rising) { return std::bit_cast<float>(rising ^ (rising >> 31 ? 0x8000'0000U : 0xFFFF'FFFFU)); }

// Returns the bin that holds number k, and makes k relative to that bin.
std::size_t find(const std::vector<std::uint32_t>& bins, std::uint64_t& k) {
    std::size_t bin = 0;
    while (k >= bins[bin]) k -= bins[bin++];
    return bin;
}

}  // namespace

void DepthCounter::start(int width, RowSink& sink) {
    counts_.assign(kTables * kBins, 0);
    width_ = static_cast<std::size_t>(width);
    sink_ = &sink;
}

void DepthCounter::take(const std::uint8_t* rows, std::size_t stride, int count) {
    std::uint32_t* const even = counts_.data();
    std::uint32_t* const odd = even + kBins;
    for (int r = 0; r < count; ++r) {
        const std::uint8_t* row = rows + r * stride;
        for (std::size_t x = 0; x + 1 < width_; x += 2) {
            std::uint32_t two;
            std::memcpy(&two, row + 2 * x, 4);
            ++even[two & 0xFFFF];
            ++odd[two >> 16];
        }
        if (width_ % 2 != 0) {
            std::uint16_t last;
            std::memcpy(&last, row + 2 * (width_ - 1), 2);
            ++even[last];
        }
    }
    sink_->take(rows, stride, count);
}

DepthQuantiles DepthCounter::quantiles(const DepthFormat& format) const {
    std::vector<std::uint32_t> bins(kBins);
    std::uint64_t count = 0, pixels = 0;
    for (std::size_t bin = 0; bin < kBins; ++bin) {
        const std::uint32_t here = counts_[bin] + counts_[kBins + bin];
        pixels += here;
        if (here == 0 || !format.valid(static_cast<double>(bin))) continue;
        bins[bin] = here;
        count += here;
    }
    return interpolate(format, count, pixels, [&](std::uint64_t k) { return static_cast<double>(find(bins, k)); });
}

DepthQuantiles quantiles_of(std::span<const float> numbers, const DepthFormat& format) {
    std::vector<std::uint32_t> upper(kBins), lower(kBins);
    std::uint64_t count = 0;
    for (const float number : numbers) {
        if (!format.valid(number)) continue;
        ++upper[rising(number) >> 16];
        ++count;
    }
    std::size_t counted = kBins;  // upper half that `lower` was counted for
    return interpolate(format, count, numbers.size(), [&](std::uint64_t k) {
        const std::size_t bin = find(upper, k);
        if (bin != counted) {
            std::fill(lower.begin(), lower.end(), 0);
            for (const float number : numbers) {
                const std::uint32_t key = rising(number);
                if (key >> 16 == bin && format.valid(number)) ++lower[key & 0xFFFF];
            }
            counted = bin;
        }
        const auto key = static_cast<std::uint32_t>(bin << 16 | find(lower, k));
        return static_cast<double>(back(key));
    });
}

}  // namespace headrace
