#include "batch/engine.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>

#include <pthread.h>

#include "batch/sample_worker.hpp"

namespace headrace {

Engine::Engine(int threads, const Limits& limits, Level level, std::vector<std::chrono::nanoseconds> retry_waits,
               int most_threads)
    : limits_(limits),
      level_(level),
      counters_(std::max({0, threads, most_threads})),
      retries_{.waits = std::move(retry_waits)},
      memory_(limits.max_decode_bytes),
      in_progress_(counters_.size()) {
    if (threads < 1) throw std::invalid_argument("expected at least 1 thread, got " + std::to_string(threads));
    threads_.reserve(counters_.size());
    try {
        std::lock_guard lock(mutex_);
        start(threads);
    } catch (...) {  // a thread could not start: running threads must not outlive this
        stop();
        throw;
    }
}

Engine::~Engine() {
    cancel();
    stop();
}

// Call with the mutex held.
void Engine::start(int threads) {
    while (static_cast<int>(threads_.size()) < threads) {
        threads_.emplace_back([this, i = static_cast<int>(threads_.size())] { work(i); });
    }
    working_.store(threads, std::memory_order_relaxed);
}

void Engine::stop() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        working_.store(most_threads(), std::memory_order_relaxed);  // resting threads help to empty the queue, then end
    }
    wake_.notify_all();
    rest_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

int Engine::set_threads(int threads) {
    if (threads < 1 || threads > most_threads()) {
        throw std::invalid_argument("expected from 1 to " + std::to_string(most_threads()) + " threads, got " +
                                    std::to_string(threads));
    }
    {
        std::lock_guard lock(mutex_);
        try {
            start(threads);
        } catch (const std::system_error&) {
            working_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
        }
    }
    rest_.notify_all();
    wake_.notify_all();  // a thread that waits for a job may have to rest
    return this->threads();
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

// Returns the oldest job that may have samples left, or null when the engine stops and nothing is queued. The job is in
// progress until the thread releases it.
std::shared_ptr<Job> Engine::next_job(int index) {
    std::unique_lock lock(mutex_);
    while (rests(index) || queue_.empty()) {
        if (rests(index)) {
            rest_.wait(lock, [&] { return !rests(index); });
            continue;
        }
        if (stopping_) return nullptr;
        ++idle_threads_;
        idle_ns_ -= now_ns();
        wake_.wait(lock, [&] { return stopping_ || !queue_.empty() || rests(index); });
        idle_ns_ += now_ns();
        --idle_threads_;
    }
    return in_progress_[index] = queue_.front();
}

// Releases the thread's job. A job with samples left, because the thread must rest, stays in the queue for the others.
void Engine::let_go(int index) {
    std::lock_guard lock(mutex_);
    const auto& job = in_progress_[index];
    if (!queue_.empty() && queue_.front() == job && job->all_taken()) queue_.pop_front();
    in_progress_[index].reset();
}

void Engine::work(int index) {
    pthread_setname_np(pthread_self(), ("headrace-" + std::to_string(index)).c_str());
    SampleWorker worker(level_, limits_, counters_[index], retries_, &memory_);
    while (auto job = next_job(index)) {
        int sample;
        while (!rests(index) && (sample = job->take()) < job->samples) {
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
