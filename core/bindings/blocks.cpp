#include <atomic>
#include <cerrno>
#include <memory>
#include <system_error>
#include <tuple>

#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <sys/mman.h>

#include "batch/block_pool.hpp"
#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

namespace {

struct Lease {
    std::shared_ptr<BlockPool> pool;
    std::uint8_t* at;
};

std::uint8_t* acquire_block(BlockPool& pool, std::size_t bytes) {
    try {
        return pool.acquire(bytes);
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

nb::object acquire(const std::shared_ptr<BlockPool>& pool, std::size_t bytes) {
    auto* lease = new Lease{pool, acquire_block(*pool, bytes)};
    nb::capsule owner(lease, [](void* p) noexcept {
        auto* held = static_cast<Lease*>(p);
        held->pool->release(held->at);
        delete held;
    });
    return nb::cast(nb::ndarray<nb::numpy, std::uint8_t>(lease->at, {bytes}, owner));
}

struct PyBlockPool {
    std::shared_ptr<BlockPool> pool;
};

struct Mapping {
    void* at;
    std::size_t bytes;
};

// Maps a part of a file that processes share; the mapping needs no descriptor afterwards.
nb::object map_file(int file, std::size_t offset, std::size_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
    if (at == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
    nb::capsule owner(new Mapping{at, bytes}, [](void* p) noexcept {
        auto* mapping = static_cast<Mapping*>(p);
        ::munmap(mapping->at, mapping->bytes);
        delete mapping;
    });
    return nb::cast(nb::ndarray<nb::numpy, std::uint8_t>(at, {bytes}, owner));
}

// Adds atomically across processes and returns the previous value.
std::int64_t fetch_add(nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> counters,
                       std::size_t index, std::int64_t value) {
    if (index >= counters.size()) throw nb::index_error("expected the index of a counter");
    static_assert(std::atomic_ref<std::int64_t>::is_always_lock_free);  // so that processes may share it
    return std::atomic_ref(counters.data()[index]).fetch_add(value);
}

}  // namespace

void bind_blocks(nb::module_& m) {
    nb::class_<PyBlockPool>(m, "BlockPool")
        .def(
            "__init__",
            [](PyBlockPool* self, std::size_t most_idle, int file) {
                new (self) PyBlockPool{std::make_shared<BlockPool>(most_idle, file)};
            },
            nb::kw_only(), "most_idle"_a, "file"_a = -1)
        .def(
            "acquire", [](PyBlockPool& self, std::size_t bytes) { return acquire(self.pool, bytes); }, "bytes"_a)
        .def(
            "offset",
            [](PyBlockPool& self, std::uintptr_t address) {
                return self.pool->offset(reinterpret_cast<const std::uint8_t*>(address));
            },
            "address"_a)
        .def(
            "set_most_idle", [](PyBlockPool& self, std::size_t most) { self.pool->set_most_idle(most); }, "most_idle"_a)
        .def("retire", [](PyBlockPool& self) { self.pool->retire(); })
        .def("usage", [](PyBlockPool& self) {
            const BlockPool::Usage u = self.pool->usage();
            return std::make_tuple(u.in_use, u.idle, u.bytes, u.made);
        });

    m.def("map_file", &map_file, "file"_a, "offset"_a, "bytes"_a);
    m.def("fetch_add", &fetch_add, "counters"_a, "index"_a, "value"_a);
}

}  // namespace headrace
