// One at a time among the threads of a process and among processes.
#pragma once

namespace headrace {

// Between threads a word of the process that holds its id, so that a fork made while another thread held it is not
// locked out for ever: what no longer runs in this process is taken over. One word for all files, since record locks
// are no locks between two stores of one file in one process. Between processes such a record lock, which the kernel
// lets go of when a process ends, however it ends.
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
    // 0, or why the file system gives no lock.
    int error() const { return error_; }

private:
    AmongThreads among_threads_;  // first: taken first, let go of last
    int fd_, error_;
};

}  // namespace headrace
