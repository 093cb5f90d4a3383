// A fixed set of threads that works on several jobs at once, oldest first, so that the last slow image of one batch
// does not idle the others.
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
#include "resample/kernels.hpp"

namespace headrace {

class Engine {
public:
    // Threads start at once and are called "headrace-N". `retry_waits` are the pauses before further attempts at a read
    // that failed for a reason that may pass. Throws std::invalid_argument for a level that is not there.
    Engine(int threads, const Limits& limits, Level level, std::vector<std::chrono::nanoseconds> retry_waits);
    // Cancels all jobs, lets samples in progress end, joins. Nothing waits in a job for longer than that.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void submit(std::shared_ptr<Job> job);
    // Cancels every job that is queued or in progress, and each that is submitted from now on.
    void cancel();
    StageTotals totals(Stage) const;
    // Time that all threads together waited for work, waits that go on included. High: the core is not what limits.
    std::int64_t idle_ns() const;
    // Attempts at reading beyond the first. High: a disk or a network that fails now and then.
    std::int64_t retries() const { return retries_.made.load(std::memory_order_relaxed); }
    int threads() const { return static_cast<int>(threads_.size()); }

private:
    void work(int index);
    std::shared_ptr<Job> next_job(int index);
    void let_go(int index);

    const Limits limits_;
    const Level level_;
    std::vector<Counters> counters_;  // one set a thread
    Retries retries_;
    mutable std::mutex mutex_;
    std::int64_t idle_ns_ = 0;  // less the moments at which the present waits began
    int idle_threads_ = 0;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Job>> queue_;         // jobs that may have samples left
    std::vector<std::shared_ptr<Job>> in_progress_;  // what each thread works on, or null
    bool stopping_ = false, cancelled_ = false;
    std::vector<std::thread> threads_;  // last: started when all else stands
};

}  // namespace headrace
