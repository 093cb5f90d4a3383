#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "batch/engine.hpp"
#include "batch/transport.hpp"
#include "bindings.hpp"
#include "common/level.hpp"
#include "job.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

namespace {

std::vector<double> seconds(const std::vector<std::chrono::nanoseconds>& times) {
    std::vector<double> seconds;
    for (const auto time : times) seconds.push_back(std::chrono::duration<double>(time).count());
    return seconds;
}

std::vector<std::chrono::nanoseconds> nanoseconds(const std::vector<double>& times_s) {
    std::vector<std::chrono::nanoseconds> times;
    for (const double time_s : times_s) {
        if (!(time_s >= 0 && time_s < 1e9)) throw nb::value_error("expected times from 0 to 1e9 s");
        times.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(time_s)));
    }
    return times;
}

class PyEngine {
public:
    PyEngine(int threads, const std::string& level, const Limits& limits, const std::vector<double>& retry_waits_s,
             int most_threads)
        : engine_(
              std::make_unique<Engine>(threads, limits, parse_level(level), nanoseconds(retry_waits_s), most_threads)),
          owner_(::getpid()) {}
    ~PyEngine() { close(); }

    void close() {
        if (::getpid() != owner_) {
            (void)engine_.release();  // the threads belong to the parent
            return;
        }
        nb::gil_scoped_release released;
        engine_.reset();
    }
    void submit(PyJob& job) { engine().submit(job.submit()); }
    void take_memory(std::int64_t bytes) {
        MemoryBudget& memory = engine().memory();
        nb::gil_scoped_release released;
        try {
            memory.take(bytes);
        } catch (const Fault& fault) {
            throw std::invalid_argument(fault.what());
        }
    }
    void give_memory_back(std::int64_t bytes) { engine().memory().give_back(bytes); }
    void cancel() {
        if (engine_ && ::getpid() == owner_) engine_->cancel();
    }
    nb::dict counters() {
        nb::dict all;
        const char* names[kStages] = {"read", "probe", "decode", "resample", "augment"};
        for (int i = 0; i < kStages; ++i) {
            const StageTotals t = engine().totals(static_cast<Stage>(i));
            all[names[i]] = nb::make_tuple(t.nanoseconds, t.items, t.bytes);
        }
        all["idle"] = nb::make_tuple(engine().idle_ns(), 0, 0);
        all["retry"] = nb::make_tuple(0, engine().retries(), 0);
        return all;
    }
    int threads() { return engine().threads(); }
    int set_threads(int threads) { return engine().set_threads(threads); }
    std::int64_t idle_ns() { return engine().idle_ns(); }

private:
    Engine& engine() {
        if (!engine_ || ::getpid() != owner_) throw nb::value_error("this engine is closed, or another process's");
        return *engine_;
    }
    std::unique_ptr<Engine> engine_;
    int owner_;
};

}  // namespace

void bind_engine(nb::module_& m) {
    nb::class_<PyEngine>(m, "Engine")
        .def(nb::init<int, const std::string&, const Limits&, const std::vector<double>&, int>(), "threads"_a,
             nb::kw_only(), "level"_a = "best", "limits"_a = Limits{}, "retry_waits_s"_a = seconds(kRetryWaits),
             "most_threads"_a = 0)
        .def("submit", &PyEngine::submit, "job"_a)
        .def("take_memory", &PyEngine::take_memory, "bytes"_a,
             "Wait until a decoder outside the core may take so much beside the others; ValueError beyond "
             "max_decode_bytes.")
        .def("give_memory_back", &PyEngine::give_memory_back, "bytes"_a)
        .def("cancel", &PyEngine::cancel)
        .def("close", &PyEngine::close)
        .def_prop_ro("threads", &PyEngine::threads)
        .def("set_threads", &PyEngine::set_threads, "threads"_a)
        .def_prop_ro("idle_ns", &PyEngine::idle_ns)
        .def("counters", &PyEngine::counters);

    m.attr("RETRY_WAITS_S") = nb::tuple(nb::cast(seconds(kRetryWaits)));
    m.def("may_pass", &may_pass, "error"_a, "Whether an errno tells of what may be over at the next attempt.");
    m.def("loses_descriptor", &loses_descriptor, "error"_a, "Whether only opening the file again can help.");
}

}  // namespace headrace
