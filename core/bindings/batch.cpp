#include "bindings.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "batch/engine.hpp"
#include "batch/transport.hpp"
#include "cache.hpp"
#include "common/level.hpp"
#include "image_options.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

namespace {

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using PixelArray = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// The core borrows arrays; these wrappers hold them for as long.
struct PyPaths {
    std::shared_ptr<Paths> paths;
    Array<std::uint8_t> names;
    Array<std::uint64_t> offsets;
};

// Where the bytes of a field lie in a batch, as headrace.data.Location has it.
struct PyRanges {
    using Ints = std::optional<Array<std::int64_t>>;
    using Words = std::optional<Array<std::uint32_t>>;
    // packed, room, method, crc, flags: as ZipRanges.
    using Zipped = std::optional<std::tuple<Array<std::int64_t>, Array<std::int64_t>, Array<std::uint32_t>,
                                            Array<std::uint32_t>, Array<std::uint32_t>>>;
    // Parts of files in memory, the first byte of each in its file, and the part that each sample lies in, or -1.
    using Held =
        std::optional<std::tuple<std::vector<Array<std::uint8_t>>, std::vector<std::int64_t>, Array<std::int64_t>>>;
    std::optional<PyPaths> paths;
    Ints path_id, offset, length;
    Words check;
    Zipped zipped;
    Held held;
};

// Where a field's entries are cached: the store, the first one, and what is cached of it.
using CachePlace = std::optional<std::tuple<const PyStore*, std::uint64_t, std::string>>;

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

// A job as Python holds it. Its arrays live until the core is done with them.
class PyJob {
public:
    PyJob(Array<std::int64_t> ids, Array<std::uint32_t> passes, std::uint64_t key, std::uint16_t dataset, Table program,
          std::optional<Table> views, std::optional<Array<std::int64_t>> draw_ids, const PyAugmentation* augment)
        : job_(std::make_shared<Job>()), owner_(::getpid()) {
        if (program.shape(1) != kProgramColumns) throw nb::value_error("expected a program of 10 columns");
        if (passes.size() != ids.size()) throw nb::value_error("expected as many passes as ids");
        job_->samples = static_cast<int>(ids.size());
        job_->ids = ids.data();
        job_->draw_ids = draw_ids ? borrow(draw_ids, "draw_ids") : ids.data();
        job_->passes = passes.data();
        job_->key = key;
        job_->dataset = dataset;
        if (augment != nullptr) job_->augment = augment->program;
        job_->program = parse_program(std::span(program.data(), program.size()));
        if (views) {
            if (views->shape(0) != ids.size() || views->shape(1) != kViewRow) {
                throw nb::value_error("expected one row of 16 numbers a sample in views");
            }
            job_->given_views = views->data();
        }
        keep_.push_back(nb::cast(ids));
        keep_.push_back(nb::cast(passes));
        if (views) keep_.push_back(nb::cast(*views));
    }

    ~PyJob() {
        if (!submitted_ || ::getpid() != owner_) {
            if (submitted_) new std::shared_ptr<Job>(job_);  // threads of the parent: nothing here may wait for them
            return;
        }
        job_->cancel();
        nb::gil_scoped_release released;
        job_->wait();
    }
    PyJob(const PyJob&) = delete;
    PyJob& operator=(const PyJob&) = delete;

    void add_image(const PyRanges& at, const PyImageOptions& options, Bytes out, int height, int width,
                   std::optional<nb::list> memory, std::optional<Bytes> valid, const CachePlace& cache) {
        ImageField field = options.field;
        field.ranges = ranges(at);
        if (width < 0 || height < 0) throw nb::value_error("expected a size of at least 0");
        if (memory) take_memory(*memory, field);
        field.format.width = width;
        field.format.height = height;
        field.cache = cache_use(cache);
        check_place(field);
        if (options.table) keep_.push_back(nb::cast(*options.table));
        if (!job_->probe_only) take_outputs(field, out, valid);
        keep_.push_back(nb::cast(out));
        if (valid) keep_.push_back(nb::cast(*valid));
        job_->images.push_back(std::move(field));
    }

    void add_raw(const PyRanges& at, const CachePlace& cache) {
        RawField field;
        field.ranges = ranges(at);
        field.cache = cache_use(cache);
        job_->raws.push_back(std::move(field));
    }

    void set_probe_only(bool value) { job_->probe_only = value; }

    std::shared_ptr<Job> submit() {
        if (submitted_) throw nb::value_error("this job has been submitted before");
        submitted_ = true;
        return job_;
    }
    void wait() {
        nb::gil_scoped_release released;
        job_->wait();
    }
    bool done() const { return job_->done(); }
    int narrowed() const { return finished().narrowed.load(std::memory_order_relaxed); }
    void cancel() { job_->cancel(); }

    std::vector<std::tuple<int, int, int, int, nb::object>> failures() {
        std::vector<std::tuple<int, int, int, int, nb::object>> list;
        for (const Failure& f : finished().failures) {
            list.emplace_back(f.sample, f.field, static_cast<int>(f.code), static_cast<int>(f.stage), text_of(f.why));
        }
        return list;
    }

    nb::list raw(std::size_t index) {
        nb::list list;
        for (const auto& bytes : finished().raws.at(index).out) list.append(nb::bytes(bytes.data(), bytes.size()));
        return list;
    }

    nb::object views() { return copy(finished().views.data(), job_->samples, kViewRow); }
    nb::object sizes() { return copy(finished().sizes.data(), job_->samples, 2); }

private:
    static CacheUse cache_use(const CachePlace& place) {
        if (!place) return {};
        const auto& [store, first, cut] = *place;
        return {store->store, first, parse_cut(cut)};
    }

    Ranges ranges(const PyRanges& at) {
        Ranges r;
        if (!at.paths) return r;
        if (!at.path_id) throw nb::value_error("paths need path_id");
        r.paths = at.paths->paths;
        r.path_id = borrow(at.path_id, "path_id");
        r.offset = borrow(at.offset, "offset");
        r.length = borrow(at.length, "length");
        r.check = borrow(at.check, "check");
        if (at.zipped) {
            if (!at.offset || !at.length || !at.check) throw nb::value_error("zipped needs offset, length and check");
            const auto& [packed, room, method, crc, flags] = *at.zipped;
            r.zip = {borrow<std::int64_t>(packed, "packed"), borrow<std::int64_t>(room, "room"),
                     borrow<std::uint32_t>(method, "method"), borrow<std::uint32_t>(crc, "crc"),
                     borrow<std::uint32_t>(flags, "flags")};
        }
        if (at.held) take_held(*at.held, r);
        keep_.push_back(nb::cast(at.paths->names));
        keep_.push_back(nb::cast(at.paths->offsets));
        return r;
    }

    void take_held(const PyRanges::Held::value_type& held, Ranges& r) {
        const auto& [parts, first, held_in] = held;
        if (parts.size() != first.size()) throw nb::value_error("expected as many parts as first bytes");
        r.held_in = borrow<std::int64_t>(held_in, "held_in");
        const auto within = [&](std::int64_t part) { return part < static_cast<std::int64_t>(parts.size()); };
        if (!std::all_of(r.held_in, r.held_in + job_->samples, within)) throw nb::value_error("no such part is held");
        for (std::size_t i = 0; i < parts.size(); ++i) {
            r.held.push_back({std::span(parts[i].data(), parts[i].size()), first[i]});
            keep_.push_back(nb::cast(parts[i]));
        }
    }

    // Kept until the job is done.
    template <typename T>
    const T* borrow(const std::optional<Array<T>>& array, const char* name) {
        if (!array) return nullptr;
        if (array->size() != static_cast<std::size_t>(job_->samples)) {
            throw nb::value_error((std::string("expected ") + std::to_string(job_->samples) + " values of " + name +
                                   ", got " + std::to_string(array->size()))
                                      .c_str());
        }
        keep_.push_back(nb::cast(*array));
        return array->data();
    }

    // Fields of one column that are decoded together are pictures of one kind.
    void check_place(const ImageField& field) const {
        const int index = static_cast<int>(job_->images.size()), with = field.decoded_with;
        if (!field.own_view && index > 0 && job_->images.back().own_view)
            throw nb::value_error("expected fields that follow the job's view before those with views of their own");
        if (with < 0) return;
        if (with > index) throw nb::value_error("expected a field to be decoded with itself or one before it");
        const ImageField& first = with == index ? field : job_->images[static_cast<std::size_t>(with)];
        const bool shrinks = first.shrink_to > 0;
        if (first.decoded_with != with || first.orient != field.orient || first.shrink_to != field.shrink_to ||
            first.format.channels != field.format.channels || field.cache.cut > (shrinks ? Cut::shrunk : Cut::file) ||
            (shrinks && (first.filter != field.filter || first.dct_scaling != field.dct_scaling)))
            throw nb::value_error("expected fields that are decoded together to be of one kind");
    }

    void take_outputs(ImageField& field, Bytes& out, std::optional<Bytes>& valid) {
        if (out.size() < field.sample_bytes() * job_->samples ||
            (valid && valid->size() < field.pixels() * job_->samples)) {
            throw nb::value_error("the output is smaller than the batch");
        }
        if (valid && field.content != Content::depth) throw nb::value_error("expected valid= for depth alone");
        field.out = out.data();
        if (valid) field.valid = valid->data();
    }

    static Memory memory_of(const PixelArray& pixels) {
        if (pixels.shape(2) < 1 || pixels.shape(2) > kMostChannels) throw nb::value_error("expected 1 to 512 channels");
        if (pixels.size() == 0) throw nb::value_error("expected at least one pixel");
        Memory memory{static_cast<const std::uint8_t*>(pixels.data()),
                      pixels.nbytes(),
                      static_cast<int>(pixels.shape(1)),
                      static_cast<int>(pixels.shape(0)),
                      static_cast<int>(pixels.shape(2)),
                      PixelType::u8};
        if (pixels.dtype() == nb::dtype<std::uint16_t>()) {
            memory.type = PixelType::u16;
        } else if (pixels.dtype() == nb::dtype<float>()) {
            memory.type = PixelType::f32;
        } else if (pixels.dtype() != nb::dtype<std::uint8_t>()) {
            throw nb::value_error("expected pixels of uint8, uint16 or float32");
        }
        return memory;
    }

    // Items are None (read from the range), bytes (encoded), or arrays [H, W, 1 or 3], of wide pictures of any number
    // of channels, of uint8, uint16 or float32.
    void take_memory(const nb::list& items, ImageField& field) {
        if (nb::len(items) != static_cast<std::size_t>(job_->samples))
            throw nb::value_error("expected one item a sample");
        for (nb::handle item : items) {
            Memory memory;
            if (nb::isinstance<nb::bytes>(item)) {
                nb::bytes bytes = nb::borrow<nb::bytes>(item);
                memory.data = static_cast<const std::uint8_t*>(bytes.data());
                memory.size = bytes.size();
                static const std::uint8_t nothing = 0;
                if (memory.size == 0) memory.data = &nothing;
            } else if (!item.is_none()) {
                memory = memory_of(nb::cast<PixelArray>(item));
                if (field.content != Content::wide && memory.channels != 1 && memory.channels != 3)
                    throw nb::value_error("expected 1 or 3 channels");
            }
            keep_.push_back(nb::borrow(item));
            field.memory.push_back(memory);
        }
    }

    const Job& finished() const {
        if (submitted_ && !job_->done()) throw nb::value_error("the job is still running; wait() for it");
        return *job_;
    }

    template <typename T>
    nb::object copy(const T* from, std::size_t rows, std::size_t columns) const {
        T* data = new T[rows * columns];
        std::copy(from, from + rows * columns, data);
        nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
        return nb::cast(nb::ndarray<nb::numpy, T>(data, {rows, columns}, owner));
    }

    std::shared_ptr<Job> job_;
    std::vector<nb::object> keep_;
    bool submitted_ = false;
    int owner_;  // process
};

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
            (void)engine_.release();  // its threads are the parent's
            return;
        }
        nb::gil_scoped_release released;
        engine_.reset();
    }
    void submit(PyJob& job) { engine().submit(job.submit()); }
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

void bind_batch(nb::module_& m) {
    nb::class_<PyPaths>(m, "Paths")
        .def(
            "__init__",
            [](PyPaths* self, nb::bytes root, Array<std::uint8_t> names, Array<std::uint64_t> offsets, bool keep_open,
               bool inside) {
                auto paths = std::make_shared<Paths>(std::string(root.c_str(), root.size()),
                                                     std::span(names.data(), names.size()),
                                                     std::span(offsets.data(), offsets.size()), keep_open, inside);
                new (self) PyPaths{std::move(paths), std::move(names), std::move(offsets)};
            },
            "root"_a, "names"_a, "offsets"_a, nb::kw_only(), "keep_open"_a, "inside"_a)
        .def("close", [](PyPaths& self) { self.paths->close(); });

    nb::class_<PyRanges>(m, "Ranges", "Where the bytes of a field lie, for each sample of a batch.")
        .def(
            "__init__",
            [](PyRanges* self, const PyPaths* paths, PyRanges::Ints path_id, PyRanges::Ints offset,
               PyRanges::Ints length, PyRanges::Words check, PyRanges::Zipped zipped, PyRanges::Held held) {
                new (self) PyRanges{paths == nullptr ? std::nullopt : std::optional(*paths),
                                    std::move(path_id),
                                    std::move(offset),
                                    std::move(length),
                                    std::move(check),
                                    std::move(zipped),
                                    std::move(held)};
            },
            nb::arg("paths").none() = nb::none(), "path_id"_a = nb::none(), "offset"_a = nb::none(),
            "length"_a = nb::none(), "check"_a = nb::none(), "zipped"_a = nb::none(), "held"_a = nb::none());

    nb::class_<PyJob>(m, "Job")
        .def(nb::init<Array<std::int64_t>, Array<std::uint32_t>, std::uint64_t, std::uint16_t, Table,
                      std::optional<Table>, std::optional<Array<std::int64_t>>, const PyAugmentation*>(),
             "ids"_a, "passes"_a, nb::kw_only(), "key"_a, "dataset"_a = 0, "program"_a, "views"_a = nb::none(),
             "draw_ids"_a = nb::none(), nb::arg("augment").none() = nb::none())
        .def("add_image", &PyJob::add_image, "at"_a, "options"_a, nb::kw_only(), "out"_a, "height"_a, "width"_a,
             "memory"_a = nb::none(), "valid"_a = nb::none(), "cache"_a = nb::none())
        .def("add_raw", &PyJob::add_raw, "at"_a, nb::kw_only(), "cache"_a = nb::none())
        .def("probe_only", [](PyJob& job) { job.set_probe_only(true); })
        .def("wait", &PyJob::wait)
        .def("cancel", &PyJob::cancel)
        .def_prop_ro("done", &PyJob::done)
        .def("failures", &PyJob::failures)
        .def_prop_ro("narrowed", &PyJob::narrowed)
        .def("raw", &PyJob::raw, "field"_a)
        .def_prop_ro("views", &PyJob::views)
        .def_prop_ro("sizes", &PyJob::sizes);

    nb::class_<PyEngine>(m, "Engine")
        .def(nb::init<int, const std::string&, const Limits&, const std::vector<double>&, int>(), "threads"_a,
             nb::kw_only(), "level"_a = "best", "limits"_a = Limits{}, "retry_waits_s"_a = seconds(kRetryWaits),
             "most_threads"_a = 0)
        .def("submit", &PyEngine::submit, "job"_a)
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
