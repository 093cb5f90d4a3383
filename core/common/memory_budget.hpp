// Memory budget that decoders of several threads share for whole images.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "common/fault.hpp"

namespace headrace {

// Throws Fault(limit) if `bytes` exceeds `most`, which is Limits::max_decode_bytes.
inline void expect_memory(std::int64_t bytes, std::int64_t most) {
    if (bytes > most)
        throw Fault(Code::limit, "decoding takes up to " + std::to_string(bytes) +
                                     " bytes, more than max_decode_bytes=" + std::to_string(most));
}

// A thread holds one share at a time and waits for nothing else meanwhile, so every share is eventually released.
class MemoryBudget {
public:
    explicit MemoryBudget(std::int64_t most) : most_(most) {}

    // Waits until `bytes` are available. Throws Fault(limit) for more than the whole budget.
    void take(std::int64_t bytes) {
        expect_memory(bytes, most_);
        std::unique_lock lock(mutex_);
        freed_.wait(lock, [&] { return held_ + bytes <= most_; });
        held_ += bytes;
    }
    void give_back(std::int64_t bytes) {
        {
            std::lock_guard lock(mutex_);
            held_ -= bytes;
        }
        freed_.notify_all();
    }

private:
    const std::int64_t most_;
    std::mutex mutex_;
    std::condition_variable freed_;
    std::int64_t held_ = 0;
};

// Scoped share of the budget; a no-op without a budget or for 0 bytes.
class MemoryShare {
public:
    MemoryShare(MemoryBudget* budget, std::int64_t bytes) : budget_(bytes > 0 ? budget : nullptr), bytes_(bytes) {
        if (budget_ != nullptr) budget_->take(bytes_);
    }
    ~MemoryShare() {
        if (budget_ != nullptr) budget_->give_back(bytes_);
    }
    MemoryShare(const MemoryShare&) = delete;
    MemoryShare& operator=(const MemoryShare&) = delete;

private:
    MemoryBudget* const budget_;
    const std::int64_t bytes_;
};

}  // namespace headrace
