// Sample workers at every instruction-set level, which must agree.
#pragma once

#include <memory>
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

inline std::vector<std::unique_ptr<Worker>> workers_of_every_level() {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int level = 0; level <= static_cast<int>(best_level()); ++level)
        workers.push_back(std::make_unique<Worker>(static_cast<Level>(level)));
    return workers;
}

}  // namespace headrace::fuzz
