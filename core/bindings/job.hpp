// Python's handle of a job, and the locations of its fields' bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "batch/job.hpp"
#include "cache.hpp"
#include "image_options.hpp"

namespace headrace {

namespace nb = nanobind;

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using PixelArray = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// The core borrows arrays; these wrappers keep them alive.
struct PyPaths {
    std::shared_ptr<Paths> paths;
    Array<std::uint8_t> names;
    Array<std::uint64_t> offsets;
};

// Locations of a field's bytes in a batch, from headrace.data.Location.
struct PyRanges {
    using Ints = std::optional<Array<std::int64_t>>;
    using Words = std::optional<Array<std::uint32_t>>;
    // packed, room, method, crc, flags of ZipRanges.
    using Zipped = std::optional<std::tuple<Array<std::int64_t>, Array<std::int64_t>, Array<std::uint32_t>,
                                            Array<std::uint32_t>, Array<std::uint32_t>>>;
    // Parts of files in memory, the file offset of each, and the index of each sample's part, or -1.
    using Held =
        std::optional<std::tuple<std::vector<Array<std::uint8_t>>, std::vector<std::int64_t>, Array<std::int64_t>>>;
    using Headers = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
    std::optional<PyPaths> paths;
    Ints path_id, offset, length;
    Words check;
    Zipped zipped;
    Held held;
    std::optional<Headers> prefix;
};

// Cache of a field's entries: the store, the number of the first entry, and the cached form.
using CachePlace = std::optional<std::tuple<const PyStore*, std::uint64_t, std::string>>;

// Python's handle of a job. It keeps the arrays alive until the core is done.
class PyJob {
public:
    PyJob(Array<std::int64_t> ids, Array<std::uint32_t> passes, std::uint64_t key, std::uint16_t dataset, Table program,
          std::optional<Table> views, std::optional<Array<std::int64_t>> draw_ids, const PyAugmentation* augment,
          std::optional<Array<std::uint8_t>> keeps);

    ~PyJob();
    PyJob(const PyJob&) = delete;
    PyJob& operator=(const PyJob&) = delete;

    void add_image(const PyRanges& at, const PyImageOptions& options, Bytes out, int height, int width,
                   std::optional<nb::list> memory, std::optional<Bytes> valid, const CachePlace& cache);
    void add_raw(const PyRanges& at, const CachePlace& cache);
    void set_probe_only(bool value) { job_->probe_only = value; }
    std::shared_ptr<Job> submit();
    void wait() {
        nb::gil_scoped_release released;
        job_->wait();
    }
    bool done() const { return job_->done(); }
    int narrowed() const { return finished().narrowed.load(std::memory_order_relaxed); }
    int transparent() const { return finished().transparent.load(std::memory_order_relaxed); }
    void cancel() { job_->cancel(); }

    nb::list failures();
    nb::list raw(std::size_t index);
    nb::object views() { return copy(finished().views.data(), job_->samples, kViewRow); }
    nb::object sizes() { return copy(finished().sizes.data(), job_->samples, 2); }

private:
    static CacheUse cache_use(const CachePlace& place) {
        if (!place) return {};
        const auto& [store, first, cut] = *place;
        return {store->store, first, parse_cut(cut)};
    }

    Ranges ranges(const PyRanges& at);
    void take_held(const PyRanges::Held::value_type& held, Ranges& r);

    // Keeps the array alive until the job is done.
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

    // Checks that fields of one column that are decoded together are pictures of one kind.
    void check_place(const ImageField& field) const;
    void take_outputs(ImageField& field, Bytes& out, std::optional<Bytes>& valid);

    static Memory memory_of(const PixelArray& pixels);

    // Items are None (read from the range), bytes (encoded), or arrays [H, W, 1 or 3] (any number of channels for wide
    // pictures) of uint8, uint16 or float32.
    void take_memory(const nb::list& items, ImageField& field);

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

}  // namespace headrace
