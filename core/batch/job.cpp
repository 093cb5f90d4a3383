#include "batch/job.hpp"

#include <cmath>

namespace headrace {

namespace {

std::int32_t whole(double value) {
    if (!(std::abs(value) <= 2147483647.0) || value != std::floor(value)) {
        throw Fault(Code::view, "expected whole numbers of pixels in the view, got " + std::to_string(value));
    }
    return static_cast<std::int32_t>(value);
}

std::uint8_t flip(double value) { return value == kFlippedFirst ? kFlippedFirst : value != 0.0; }

}  // namespace

void write_view(const View& v, double* row) {
    const double window[] = {v.x0, v.y0, v.x1, v.y1};
    const std::int32_t pixels[] = {v.left,    v.top,         v.right,        v.bottom, v.width, v.height,    v.inner_x,
                                   v.inner_y, v.inner_width, v.inner_height, v.hflip,  v.vflip, v.transposed};
    std::copy(std::begin(pixels), std::end(pixels), std::copy(std::begin(window), std::end(window), row));
}

View read_view(const double* r) {
    return {r[0],         r[1],         r[2],        r[3],        whole(r[4]),  whole(r[5]),
            whole(r[6]),  whole(r[7]),  whole(r[8]), whole(r[9]), whole(r[10]), whole(r[11]),
            whole(r[12]), whole(r[13]), flip(r[14]), flip(r[15]), r[16] != 0.0};
}

void Job::prepare() {
    views.assign(static_cast<std::size_t>(samples) * kViewRow, 0.0);
    sizes.assign(static_cast<std::size_t>(samples) * 2, 0);
    for (RawField& raw : raws) raw.out.resize(samples);
    left_.store(samples);
}

void Job::wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return left_.load() == 0; });
}

bool Job::done() const { return left_.load() == 0; }

void Job::cancel() {
    {
        std::lock_guard lock(mutex_);  // otherwise a waiter between its check and its wait would miss the wake-up
        cancelled_.store(true, std::memory_order_relaxed);
    }
    cancelled_now_.notify_all();
}

bool Job::pause(std::chrono::nanoseconds time) {
    std::unique_lock lock(mutex_);
    return !cancelled_now_.wait_for(lock, time, [this] { return cancelled(); });
}

void Job::fail(Failure failure) {
    std::lock_guard lock(mutex_);
    failures.push_back(std::move(failure));
}

void Job::finish_one() {
    if (left_.fetch_sub(1) != 1) return;
    std::lock_guard lock(mutex_);  // a waiter that saw 1 is waiting by now
    all_done_.notify_all();
}

}  // namespace headrace
