// Sample workers at every instruction-set level, which must agree.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batch/sample_worker.hpp"
#include "common/level.hpp"

namespace headrace::fuzz {

inline const Limits kLimits{};

// Reused between runs, like in an engine's threads: state left by one picture must not affect the next.
struct Worker {
    Counters counters;
    Retries retries;
    SampleWorker worker;
    explicit Worker(Level level) : worker(level, kLimits, counters, retries) {}
};

// Job of one sample.
struct OneSample {
    const std::int64_t id = 7;
    const std::uint32_t pass = 0;
    Job job;
    OneSample(std::uint64_t key, const std::vector<ViewOp>& program) {
        job.samples = 1;
        job.ids = job.draw_ids = &id;
        job.passes = &pass;
        job.key = key;
        job.program = program;
    }
    // Runs the job and returns the codes and texts of its failures.
    std::string run(SampleWorker& worker) {
        job.prepare();
        worker.run(job, 0);
        std::string texts;
        for (const Failure& f : job.failures) texts += std::to_string(static_cast<int>(f.code)) + f.why + "\n";
        return texts;
    }
};

inline std::vector<std::unique_ptr<Worker>> workers_of_every_level() {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int level = 0; level <= static_cast<int>(best_level()); ++level)
        workers.push_back(std::make_unique<Worker>(static_cast<Level>(level)));
    return workers;
}

}  // namespace headrace::fuzz
