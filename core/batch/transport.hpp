// Errors of reading that are no fault of what is read: which may pass, and how often reading is tried again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/fault.hpp"

namespace headrace {

// Opening or reading failed with this errno.
struct TransportFault : Fault {
    int error;
    // `what` failed: "cannot open PATH".
    TransportFault(int error_, const std::string& what);
};

// Whether an errno tells of a disk, a network or a server, which may answer the next time. A name that is not there, a
// right that is missing and the like stay as they are.
bool may_pass(int error);

// Whether it has taken the descriptor with it, so that only opening the file again can help.
bool loses_descriptor(int error);

// The pause before each further attempt. A server that is restarted, or a path that changes over, takes seconds; what
// takes longer stops the run, and its state is resumed.
inline const std::vector<std::chrono::nanoseconds> kRetryWaits{
    std::chrono::milliseconds(50), std::chrono::milliseconds(200), std::chrono::milliseconds(800),
    std::chrono::milliseconds(3200)};

// What the readers of one engine share. Once a read has failed at every attempt the run is going to stop: the others do
// not try again, or a mount that is gone would take their pauses once for each sample of a batch.
struct Retries {
    std::vector<std::chrono::nanoseconds> waits = kRetryWaits;
    std::atomic<std::int64_t> made{0};  // attempts beyond the first
    std::atomic<bool> given_up{false};
};

}  // namespace headrace
