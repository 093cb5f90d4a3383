// Stress test of the batch queue: several threads submit jobs to one engine, wait for them, cancel them, read counters,
// change the number of threads and borrow memory, while engines are created and destroyed. Jobs that are not cancelled
// must have the results of a single thread.
//
//     stress_batch_queue [ROUNDS [SEED]]        exit code 0: success; ThreadSanitizer adds its own
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "batch/block_pool.hpp"
#include "batch/engine.hpp"
#include "batch/job.hpp"
#include "stress/photograph.hpp"
#include "view/program.hpp"

namespace headrace::stress {
namespace {

constexpr int kFiles = 150;  // more than Paths keeps open
constexpr int kSubmitters = 4, kJobsEach = 6, kInFlight = 3, kEngineThreads = 4, kMostThreads = 7, kSide = 24;
constexpr int kSamples = 40;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "stress: %s\n", what);
    std::abort();
}

// Photographs on disk, one of them invalid, and their names in index format.
class Files {
public:
    explicit Files(const std::string& folder) : folder_(folder) {
        for (int i = 0; i < kFiles; ++i) {
            const std::string name = std::to_string(i) + ".jpg";
            std::vector<std::uint8_t> file = photograph(40 + i % 30, 30 + i % 20, i);
            if (i == kBad) file.resize(file.size() / 2);
            std::ofstream(folder + "/" + name, std::ios::binary)
                .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
            names_ += name;
            offsets_.push_back(names_.size());
        }
    }
    std::shared_ptr<Paths> paths(bool keep_open) const {
        return std::make_shared<Paths>(folder_,
                                       std::span(reinterpret_cast<const std::uint8_t*>(names_.data()), names_.size()),
                                       offsets_, keep_open, false);
    }
    static constexpr int kBad = 7;

private:
    std::string folder_, names_;
    std::vector<std::uint64_t> offsets_{0};
};

// Job and the memory that it borrows.
struct Batch {
    std::shared_ptr<Job> job = std::make_shared<Job>();
    std::vector<std::int64_t> ids, path_id;
    std::vector<std::uint32_t> passes;
    std::uint8_t* out = nullptr;

    std::size_t bytes() const { return job->images[0].format.bytes() * static_cast<std::size_t>(job->samples); }
};

const std::vector<double>& crop_program() {
    static const std::vector<double> table = {kRandomResizedCrop, kSide, kSide, 0.1, 1, 0.75, 4.0 / 3, 0, 0, 0};
    return table;
}

void describe(Batch& batch, const std::shared_ptr<Paths>& paths, int number) {
    Job& job = *batch.job;
    for (int i = 0; i < kSamples; ++i) {
        batch.ids.push_back(number * kSamples + i);
        batch.path_id.push_back((number * 31 + i * 7) % kFiles);
        batch.passes.push_back(0);
    }
    job.samples = kSamples;
    job.ids = job.draw_ids = batch.ids.data();
    job.passes = batch.passes.data();
    job.key = 5;
    job.program = parse_program(crop_program());
    ImageField image;
    image.ranges.paths = paths;
    image.ranges.path_id = batch.path_id.data();
    image.format.width = image.format.height = kSide;
    job.images.push_back(image);
    RawField raw;
    raw.ranges = image.ranges;
    job.raws.push_back(raw);
}

// Scoped lease that returns a batch's memory to the pool.
class Lease {
public:
    Lease(BlockPool& pool, Batch& batch) : pool_(pool), at_(pool.acquire(batch.bytes())) {
        batch.out = at_;
        batch.job->images[0].out = at_;
    }
    ~Lease() { pool_.release(at_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

private:
    BlockPool& pool_;
    std::uint8_t* at_;
};

// Returns the bytes of each sample, in order; empty for failed samples, since their memory is not written.
std::vector<std::vector<std::uint8_t>> samples_of(const Batch& batch) {
    const std::size_t each = batch.job->images[0].format.bytes();
    std::vector<std::vector<std::uint8_t>> samples;
    for (int i = 0; i < batch.job->samples; ++i) samples.emplace_back(batch.out + i * each, batch.out + (i + 1) * each);
    for (const Failure& failure : batch.job->failures) samples[failure.sample].clear();
    return samples;
}

using Expected = std::vector<std::vector<std::vector<std::uint8_t>>>;  // by job number

Expected make_alone(const Files& files) {
    Expected expected;
    BlockPool pool(1);
    Engine engine(1, Limits{}, best_level(), kRetryWaits);
    for (int number = 0; number < kSubmitters * kJobsEach; ++number) {
        Batch batch;
        describe(batch, files.paths(false), number);
        const Lease lease(pool, batch);
        engine.submit(batch.job);
        batch.job->wait();
        expected.push_back(samples_of(batch));
    }
    return expected;
}

void check(const Batch& batch, const std::vector<std::vector<std::uint8_t>>& expected) {
    require(batch.job->done(), "a job that was waited for is done");
    const auto got = samples_of(batch);
    for (const Failure& failure : batch.job->failures) {
        const bool bad = batch.path_id[failure.sample] == Files::kBad;
        require(failure.code == Code::cancelled || (failure.code == Code::corrupt && bad), "only the bad file fails");
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
        require(got[i].empty() || got[i] == expected[i], "a sample is what one thread makes of it");
    }
}

// Submits its jobs, a few in flight at a time, and cancels some of them.
void submit_and_wait(Engine& engine, BlockPool& pool, const std::shared_ptr<Paths>& paths, const Expected& expected,
                     int submitter, std::uint32_t seed) {
    std::mt19937 random(seed);
    struct InFlight {
        Batch batch;
        std::optional<Lease> lease;
        int number = 0;
    };
    std::vector<std::unique_ptr<InFlight>> in_flight;
    const auto finish_first = [&] {
        InFlight& first = *in_flight.front();
        if (random() % 4 == 0) first.batch.job->cancel();
        std::thread other([&] { first.batch.job->wait(); });  // several threads may wait
        first.batch.job->wait();
        check(first.batch, expected[first.number]);
        other.join();
        in_flight.erase(in_flight.begin());
    };
    for (int i = 0; i < kJobsEach; ++i) {
        auto next = std::make_unique<InFlight>();
        next->number = submitter * kJobsEach + i;
        describe(next->batch, paths, next->number);
        next->lease.emplace(pool, next->batch);
        engine.submit(next->batch.job);
        in_flight.push_back(std::move(next));
        if (in_flight.size() == kInFlight) finish_first();
    }
    while (!in_flight.empty()) finish_first();
}

// Reads the counters and pool usage until `stop` is set.
void watch(const Engine& engine, const BlockPool& pool, Paths& paths, const std::atomic<bool>& stop) {
    std::int64_t items = 0;
    while (!stop.load()) {
        const StageTotals totals = engine.totals(Stage::decode);
        require(totals.items >= items && engine.idle_ns() >= 0, "counters only grow");
        items = totals.items;
        require(pool.usage().in_use <= kSubmitters * kInFlight, "no more memory in use than batches are in flight");
        paths.close();  // readers retain the files they are using
        std::this_thread::yield();
    }
}

// Changes the number of threads until `stop` is set.
void resize(Engine& engine, std::uint32_t seed, const std::atomic<bool>& stop) {
    std::mt19937 random(seed);
    while (!stop.load()) {
        const int threads = 1 + static_cast<int>(random() % kMostThreads);
        require(engine.set_threads(threads) == threads && engine.threads() == threads, "as many threads as asked for");
        std::this_thread::yield();
    }
}

void run_round(const Files& files, const Expected& expected, std::mt19937& random) {
    BlockPool pool(2);
    auto engine = std::make_unique<Engine>(kEngineThreads, Limits{}, best_level(), kRetryWaits, kMostThreads);
    const std::shared_ptr<Paths> paths = files.paths(true);
    std::atomic<bool> stop{false};
    std::thread watcher([&] { watch(*engine, pool, *paths, stop); });
    std::optional<std::thread> resizer;
    if (random() % 3 != 0) resizer.emplace(resize, std::ref(*engine), random(), std::cref(stop));
    std::vector<std::thread> submitters;
    for (int i = 0; i < kSubmitters; ++i) {
        submitters.emplace_back(submit_and_wait, std::ref(*engine), std::ref(pool), std::cref(paths),
                                std::cref(expected), i, random());
    }
    std::thread canceller;
    if (random() % 3 == 0) canceller = std::thread([&] { engine->cancel(); });
    for (std::thread& submitter : submitters) submitter.join();
    if (canceller.joinable()) canceller.join();
    stop.store(true);
    watcher.join();
    if (resizer) resizer->join();
    require(pool.usage().in_use == 0, "all memory is given back");
}

// Destroying an engine with queued jobs must wake the threads that wait for them.
void close_under_waiters(const Files& files, const Expected& expected) {
    BlockPool pool(2);
    auto engine = std::make_unique<Engine>(kEngineThreads, Limits{}, best_level(), kRetryWaits);
    std::vector<Batch> batches(3);
    std::vector<std::unique_ptr<Lease>> leases;
    std::vector<std::thread> waiters;
    for (std::size_t i = 0; i < batches.size(); ++i) {
        describe(batches[i], files.paths(true), static_cast<int>(i));
        leases.push_back(std::make_unique<Lease>(pool, batches[i]));
        engine->submit(batches[i].job);
    }
    for (Batch& batch : batches) waiters.emplace_back([&batch] { batch.job->wait(); });
    engine->set_threads(1);  // the other threads leave their work to the remaining one
    engine.reset();
    for (std::thread& waiter : waiters) waiter.join();
    for (std::size_t i = 0; i < batches.size(); ++i) check(batches[i], expected[i]);
}

// This process's memory as a file: reads of unmapped pages, such as the first, fail with EIO, a transient error.
std::shared_ptr<Paths> unreadable() {
    static const std::string name = "mem";
    static const std::uint64_t offsets[] = {0, name.size()};
    return std::make_shared<Paths>(
        "/proc/self", std::span(reinterpret_cast<const std::uint8_t*>(name.data()), name.size()), offsets, true, false);
}

// Readers that wait for an hour before a retry must be woken by anything that ends their job.
void cancel_in_pauses(std::mt19937& random) {
    const std::vector<std::int64_t> zeros(kSamples, 0), offsets(kSamples, 4096), lengths(kSamples, 16);
    auto engine = std::make_unique<Engine>(kEngineThreads, Limits{}, best_level(),
                                           std::vector<std::chrono::nanoseconds>{std::chrono::hours(1)});
    std::vector<std::shared_ptr<Job>> jobs;
    for (int i = 0; i < 2; ++i) {
        RawField raw;
        raw.ranges.paths = unreadable();
        raw.ranges.path_id = zeros.data();
        raw.ranges.offset = offsets.data();
        raw.ranges.length = lengths.data();
        const auto& job = jobs.emplace_back(std::make_shared<Job>());
        job->samples = i == 0 ? 1 : kSamples;  // the queue releases the first job while it waits
        job->raws.push_back(raw);
        engine->submit(job);
    }
    std::vector<std::thread> others;
    for (const auto& job : jobs) others.emplace_back([&job] { job->wait(); });
    const bool until_paused = random() % 4 != 0;
    while (until_paused && engine->retries() == 0) std::this_thread::yield();
    if (random() % 3 == 0) others.emplace_back([&] { jobs.front()->cancel(); });
    if (random() % 3 == 0) others.emplace_back([&jobs] { jobs.back()->cancel(); });
    if (random() % 2 == 0) {
        engine->cancel();
        for (std::thread& other : others) other.join();
        others.clear();
    }
    engine.reset();
    for (std::thread& other : others) other.join();
    for (const auto& job : jobs) {
        for (const Failure& failure : job->failures) require(failure.code == Code::cancelled, "a pause is cut short");
    }
}

int run(int rounds, std::uint32_t seed) {
    std::string folder = std::filesystem::temp_directory_path() / "headrace-stress-XXXXXX";
    require(mkdtemp(folder.data()) != nullptr, "a temporary folder");
    {
        const Files files(folder);
        const Expected expected = make_alone(files);
        std::mt19937 random(seed);
        for (int round = 0; round < rounds; ++round) {
            run_round(files, expected, random);
            close_under_waiters(files, expected);
            cancel_in_pauses(random);
        }
    }
    std::filesystem::remove_all(folder);
    std::printf("%d rounds of %d jobs on %d threads\n", rounds, kSubmitters * kJobsEach, kEngineThreads);
    return 0;
}

}  // namespace
}  // namespace headrace::stress

int main(int argc, char** argv) {
    return headrace::stress::run(argc > 1 ? std::atoi(argv[1]) : 20,
                                 argc > 2 ? static_cast<std::uint32_t>(std::atoi(argv[2])) : 1);
}
