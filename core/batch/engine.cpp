#include "batch/engine.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <pthread.h>

#include "batch/sample_worker.hpp"

namespace headrace {

Engine::Engine(int threads, const Limits& limits, Level level, std::vector<std::chrono::nanoseconds> retry_waits)
    : limits_(limits),
      level_(level),
      counters_(std::max(0, threads)),
      retries_{.waits = std::move(retry_waits)},
      in_progress_(std::max(0, threads)) {
    if (threads < 1) throw std::invalid_argument("expected at least 1 thread, got " + std::to_string(threads));
    threads_.reserve(threads);
    try {
        for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
    } catch (...) {  // the system refused a thread: those that run must not outlive this
        {
            std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread& thread : threads_) thread.join();
        throw;
    }
}

Engine::~Engine() {
    cancel();
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Engine::submit(std::shared_ptr<Job> job) {
    job->prepare();
    if (job->samples == 0) return;
    {
        std::lock_guard lock(mutex_);
        if (cancelled_) job->cancel();
        queue_.push_back(std::move(job));
    }
    wake_.notify_all();
}

void Engine::cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (const auto& job : queue_) job->cancel();
    for (const auto& job : in_progress_) {
        if (job) job->cancel();
    }
}

std::int64_t Engine::idle_ns() const {
    std::lock_guard lock(mutex_);
    return idle_ns_ + idle_threads_ * now_ns();
}

StageTotals Engine::totals(Stage stage) const {
    StageTotals totals;
    for (const Counters& counters : counters_) counters[static_cast<int>(stage)].add_to(totals);
    return totals;
}

// The oldest job that may have samples left, or null when the engine stops and nothing is queued. It is in progress
// until the thread lets go of it.
std::shared_ptr<Job> Engine::next_job(int index) {
    std::unique_lock lock(mutex_);
    if (queue_.empty()) {
        ++idle_threads_;
        idle_ns_ -= now_ns();
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        idle_ns_ += now_ns();
        --idle_threads_;
    }
    if (queue_.empty()) return nullptr;
    return in_progress_[index] = queue_.front();
}

void Engine::let_go(int index) {
    std::lock_guard lock(mutex_);
    if (!queue_.empty() && queue_.front() == in_progress_[index]) queue_.pop_front();
    in_progress_[index].reset();
}

void Engine::work(int index) {
    pthread_setname_np(pthread_self(), ("headrace-" + std::to_string(index)).c_str());
    SampleWorker worker(level_, limits_, counters_[index], retries_);
    while (auto job = next_job(index)) {
        int sample;
        while ((sample = job->take()) < job->samples) {
            try {
                worker.run(*job, sample);
            } catch (const std::exception& error) {  // out of memory: replacing the sample would change the batch
                job->fail({sample, 0, Code::memory, Stage::decode, std::string("out of memory: ") + error.what()});
            }
            job->finish_one();
        }
        let_go(index);
    }
}

}  // namespace headrace
