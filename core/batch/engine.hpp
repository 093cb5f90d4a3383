// Thread pool that works on several jobs at once, oldest first, so that the last slow image of a batch does not idle
// the other threads. The number of working threads may change at any time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "batch/counters.hpp"
#include "batch/job.hpp"
#include "batch/transport.hpp"
#include "common/limits.hpp"
#include "common/memory_budget.hpp"
#include "resample/kernels.hpp"

namespace headrace {

class Engine {
public:
    // Starts `threads` threads named "headrace-N"; `set_threads` accepts up to `most_threads` (0: `threads`).
    // `retry_waits` are the delays before further attempts at a read with a transient error. Throws
    // std::invalid_argument for an unsupported level.
    Engine(int threads, const Limits& limits, Level level, std::vector<std::chrono::nanoseconds> retry_waits,
           int most_threads = 0);
    // Cancels all jobs, waits for samples in progress, and joins. Threads that wait for a job return by then.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void submit(std::shared_ptr<Job> job);
    // Sets the number of working threads, from 1 to most_threads(). Other threads finish their sample and rest; missing
    // threads are started. Returns the number of working threads: fewer if a thread could not start. Throws
    // std::invalid_argument for numbers out of range.
    int set_threads(int threads);
    // Cancels every job that is queued or in progress, and every job submitted later.
    void cancel();
    StageTotals totals(Stage) const;
    // Total time that threads waited for work, including current waits; resting threads do not count. High: the core is
    // not the bottleneck.
    std::int64_t idle_ns() const;
    // Memory budget of decoding, which other decoders may share.
    MemoryBudget& memory() { return memory_; }
    // Read attempts beyond the first. High: a disk or network with intermittent failures.
    std::int64_t retries() const { return retries_.made.load(std::memory_order_relaxed); }
    // Threads that work, or would if there were work.
    int threads() const { return working_.load(std::memory_order_relaxed); }
    int most_threads() const { return static_cast<int>(counters_.size()); }

private:
    void start(int threads);
    void stop();
    void work(int index);
    std::shared_ptr<Job> next_job(int index);
    void let_go(int index);
    bool rests(int index) const { return index >= working_.load(std::memory_order_relaxed); }

    const Limits limits_;
    const Level level_;
    std::vector<Counters> counters_;  // one set per thread
    Retries retries_;
    MemoryBudget memory_;
    mutable std::mutex mutex_;
    std::int64_t idle_ns_ = 0;  // minus the start times of current waits
    int idle_threads_ = 0;
    std::condition_variable wake_;                   // for threads that wait for a job
    std::condition_variable rest_;                   // for resting threads
    std::atomic<int> working_{0};                    // changed under the mutex; threads check it between samples
    std::deque<std::shared_ptr<Job>> queue_;         // jobs that may have samples left
    std::vector<std::shared_ptr<Job>> in_progress_;  // current job of each thread, or null
    bool stopping_ = false, cancelled_ = false;
    std::vector<std::thread> threads_;  // last member: started after all others are initialized; grows under the mutex
};

}  // namespace headrace
