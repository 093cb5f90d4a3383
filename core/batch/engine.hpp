// Threads that work on several jobs at once, oldest first, so that the last slow image of one batch does not idle the
// others. How many of them work may change at any time.
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
    // `threads` start at once and are called "headrace-N"; `set_threads` takes up to `most_threads` (0: no more than
    // these). `retry_waits` are the pauses before further attempts at a read that failed for a reason that may pass.
    // Throws std::invalid_argument for a level that is not there.
    Engine(int threads, const Limits& limits, Level level, std::vector<std::chrono::nanoseconds> retry_waits,
           int most_threads = 0);
    // Cancels all jobs, lets samples in progress end, joins. Nothing waits in a job for longer than that.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void submit(std::shared_ptr<Job> job);
    // So many threads work from now on, from 1 to most_threads(). Others end the sample that they are at and rest;
    // those that do not exist yet are started. Returns how many work: fewer where the system refuses a thread. Throws
    // std::invalid_argument for other numbers.
    int set_threads(int threads);
    // Cancels every job that is queued or in progress, and each that is submitted from now on.
    void cancel();
    StageTotals totals(Stage) const;
    // Time that all threads together waited for work, waits that go on included; those that rest do not wait. High: the
    // core is not what limits.
    std::int64_t idle_ns() const;
    // What decoding takes, also that of others who share it.
    MemoryBudget& memory() { return memory_; }
    // Attempts at reading beyond the first. High: a disk or a network that fails now and then.
    std::int64_t retries() const { return retries_.made.load(std::memory_order_relaxed); }
    // Threads that work, or would if there were any.
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
    std::vector<Counters> counters_;  // one set a thread
    Retries retries_;
    MemoryBudget memory_;
    mutable std::mutex mutex_;
    std::int64_t idle_ns_ = 0;  // less the moments at which the present waits began
    int idle_threads_ = 0;
    std::condition_variable wake_;            // of threads that wait for a job
    std::condition_variable rest_;            // of threads that rest
    std::atomic<int> working_{0};             // changed under the mutex; a thread looks at it between two samples
    std::deque<std::shared_ptr<Job>> queue_;  // jobs that may have samples left
    std::vector<std::shared_ptr<Job>> in_progress_;  // what each thread works on, or null
    bool stopping_ = false, cancelled_ = false;
    std::vector<std::thread> threads_;  // last: started when all else stands; grows under the mutex
};

}  // namespace headrace
