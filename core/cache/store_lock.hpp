// Mutual exclusion among the threads of a process and among processes.
#pragma once

namespace headrace {

// Threads use a word with the process id, so that a fork made while another thread holds the lock is not locked out
// forever: a lock of another process id is taken over. One word serves all files, since record locks do not exclude two
// stores of one file in one process. Processes use a record lock, which the kernel releases when a process ends.
class StoreLock {
public:
    class AmongThreads {
    public:
        AmongThreads();
        ~AmongThreads();
        AmongThreads(const AmongThreads&) = delete;
        AmongThreads& operator=(const AmongThreads&) = delete;
    };

    explicit StoreLock(int fd);
    ~StoreLock();
    StoreLock(const StoreLock&) = delete;
    StoreLock& operator=(const StoreLock&) = delete;
    // 0, or the errno of a failed file lock.
    int error() const { return error_; }

private:
    AmongThreads among_threads_;  // first member: acquired first, released last
    int fd_, error_;
};

}  // namespace headrace
