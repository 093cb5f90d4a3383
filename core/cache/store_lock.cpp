#include "cache/store_lock.hpp"

#include <atomic>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "cache/layout.hpp"

namespace headrace {

namespace {

std::atomic<int> holder_process{0};

int set_lock(int fd, short kind) {
    struct flock lock{};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = kCacheTailAt;
    lock.l_len = sizeof(CacheTail);
    while (::fcntl(fd, F_SETLKW, &lock) != 0) {
        if (errno != EINTR) return errno;
    }
    return 0;
}

}  // namespace

StoreLock::AmongThreads::AmongThreads() {
    const int own = ::getpid();
    for (int holder = 0; !holder_process.compare_exchange_weak(holder, own, std::memory_order_acquire);) {
        if (holder == own) {
            holder = 0;
            std::this_thread::yield();
        }
    }
}

StoreLock::AmongThreads::~AmongThreads() { holder_process.store(0, std::memory_order_release); }

StoreLock::StoreLock(int fd) : fd_(fd), error_(set_lock(fd, F_WRLCK)) {}

StoreLock::~StoreLock() { set_lock(fd_, F_UNLCK); }

}  // namespace headrace
