// Time spent by the core's threads, by stage.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/rows.hpp"

namespace headrace {

enum class Stage : std::uint8_t { read = 0, probe = 1, decode = 2, resample = 3, augment = 4 };
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

// Current stage of one thread, with which a failure is reported, and its counters.
class StageClock {
public:
    explicit StageClock(Counters& counters) : counters_(counters) {}
    void enter(Stage stage) { stage_ = stage; }
    Stage stage() const { return stage_; }
    // Counts the time since `since`. An item whose time is counted in several steps counts in one of them.
    void spent(Stage stage, std::int64_t since, std::size_t bytes, int items = 1) {
        counters_[static_cast<int>(stage)].add(now_ns() - since, items, static_cast<std::int64_t>(bytes));
    }
    // Counts a decoder and the sink of its rows: nanoseconds, bytes read and bytes produced.
    void spent_on_rows(std::int64_t since, std::int64_t sink_ns, std::size_t bytes, std::int64_t made) {
        const std::int64_t total = now_ns() - since;
        counters_[static_cast<int>(Stage::decode)].add(total - sink_ns, 1, static_cast<std::int64_t>(bytes));
        counters_[static_cast<int>(Stage::resample)].add(sink_ns, 1, made);
    }

private:
    Counters& counters_;
    Stage stage_ = Stage::read;
};

// Passes rows on and measures the receiver's time, since decoding and resampling alternate band by band.
class TimedSink final : public RowSink {
public:
    explicit TimedSink(RowSink& sink) : sink_(sink) {}
    void take(const std::uint8_t* rows, std::size_t stride, int count) override {
        const std::int64_t since = now_ns();
        sink_.take(rows, stride, count);
        spent_ += now_ns() - since;
    }
    std::int64_t spent_ns() const { return spent_; }

private:
    RowSink& sink_;
    std::int64_t spent_ = 0;
};

}  // namespace headrace
