// Time spent by the core's threads, by stage.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "batch/job.hpp"

namespace headrace {

inline constexpr int kStages = 5;

// Totals of one stage. The stage with the most nanoseconds is the bottleneck; nanoseconds / items is the cost of one
// image.
struct StageTotals {
    std::int64_t nanoseconds = 0, items = 0, bytes = 0;
};

// Written by one thread, read by any.
class StageCounter {
public:
    void add(std::int64_t nanoseconds, std::int64_t items, std::int64_t bytes) {
        bump(nanoseconds_, nanoseconds);
        bump(items_, items);
        bump(bytes_, bytes);
    }
    void add_to(StageTotals& totals) const {
        totals.nanoseconds += nanoseconds_.load(std::memory_order_relaxed);
        totals.items += items_.load(std::memory_order_relaxed);
        totals.bytes += bytes_.load(std::memory_order_relaxed);
    }

private:
    // A single writer needs no read-modify-write.
    static void bump(std::atomic<std::int64_t>& value, std::int64_t by) {
        value.store(value.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    std::atomic<std::int64_t> nanoseconds_{0}, items_{0}, bytes_{0};
};

using Counters = std::array<StageCounter, kStages>;

inline std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace headrace
