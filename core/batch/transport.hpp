// Read errors unrelated to content: classification of transient errors, and retries.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/fault.hpp"

namespace headrace {

// Failure to open or read, with its errno.
struct TransportFault : Fault {
    int error;
    // `what` failed: "cannot open PATH".
    TransportFault(int error_, const std::string& what);
};

// True if an errno may be transient: a disk, network or server that may respond next time. Missing names, missing
// permissions and the like are permanent.
bool may_pass(int error);

// True if the error invalidated the descriptor, so that only reopening the file can help.
bool loses_descriptor(int error);

// Pause before each further attempt. A server restart or a path failover takes seconds; longer outages stop the run,
// which can be resumed from its state.
inline const std::vector<std::chrono::nanoseconds> kRetryWaits{
    std::chrono::milliseconds(50), std::chrono::milliseconds(200), std::chrono::milliseconds(800),
    std::chrono::milliseconds(3200)};

// Retry state shared by an engine's readers. Once a read has failed at every attempt, the run will stop, so other
// readers do not retry: with a lost mount, they would pause for every sample of a batch.
struct Retries {
    std::vector<std::chrono::nanoseconds> waits = kRetryWaits;
    std::atomic<std::int64_t> made{0};  // attempts beyond the first
    std::atomic<bool> given_up{false};
};

}  // namespace headrace
