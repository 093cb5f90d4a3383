// Separate timing of decoding and of the receiver of its rows.
#pragma once

#include "batch/counters.hpp"
#include "common/rows.hpp"

namespace headrace {

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
