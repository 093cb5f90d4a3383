#include "cache.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

namespace {

CacheDigest digest_of(const nb::bytes& bytes) {
    CacheDigest digest;
    if (bytes.size() != digest.size()) throw nb::value_error("expected 32 bytes");
    std::copy_n(static_cast<const std::uint8_t*>(bytes.data()), digest.size(), digest.begin());
    return digest;
}

[[noreturn]] void raise_errno(int error) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}

void check_entries(std::uint64_t entries) {
    if (entries > kCacheMostEntries) throw nb::value_error("expected at most 2^40 entries");
}

void make(int fd, std::uint64_t entries, const nb::bytes& key, const nb::bytes& stamp) {
    check_entries(entries);
    if (const int error = CacheFile(fd).make(entries, digest_of(key), digest_of(stamp))) raise_errno(error);
}

const char* kind(int fd, std::uint64_t entries, const nb::bytes& key, const nb::bytes& stamp) {
    static const char* const names[] = {"ours", "damaged", "other version", "other key", "other stamp"};
    return names[static_cast<int>(CacheFile(fd).kind(entries, digest_of(key), digest_of(stamp)))];
}

void check_index(const Store& store, std::uint64_t index) {
    if (index < store.entries()) return;
    const std::string text = "entry " + std::to_string(index) + " of " + std::to_string(store.entries());
    throw nb::index_error(text.c_str());
}

nb::object get(PyStore& self, std::uint64_t index) {
    Store& store = *self.store;
    check_index(store, index);
    std::optional<Store::Item> item;
    {
        nb::gil_scoped_release released;
        item = store.find(index);
    }
    if (!item) return nb::none();
    nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(item->bytes)));
    if (!bytes.is_valid()) throw nb::python_error();
    const Part part(reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(bytes.ptr())), item->bytes);
    bool whole;
    {
        nb::gil_scoped_release released;
        whole = store.read(index, *item, {&part, 1});
    }
    return whole ? bytes : nb::none();
}

// A view of whatever has one, released at the end.
struct Buffer {
    explicit Buffer(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    ~Buffer() { PyBuffer_Release(&view); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    Py_buffer view;
};

bool put(PyStore& self, std::uint64_t index, nb::object data) {
    check_index(*self.store, index);
    const Buffer buffer(data);
    const ConstPart part(static_cast<const std::uint8_t*>(buffer.view.buf), static_cast<std::size_t>(buffer.view.len));
    nb::gil_scoped_release released;
    return self.store->put(index, {&part, 1});
}

nb::dict counts(const PyStore& self) {
    const Store::Counts counts = self.store->counts();
    nb::dict all;
    all["hits"] = counts.hits;
    all["misses"] = counts.misses;
    all["admitted"] = counts.admitted;
    all["damaged"] = counts.damaged;
    all["hit_bytes"] = counts.hit_bytes;
    all["admitted_bytes"] = counts.admitted_bytes;
    return all;
}

}  // namespace

void bind_cache(nb::module_& m) {
    m.attr("CACHE_VERSION") = kCacheVersion;
    m.attr("CACHE_FULL") = Store::kFull;
    m.def("cache_bytes", &cache_data_at, "entries"_a, "Bytes of a cache's file in which nothing is kept.");
    m.def("make_cache", &make, "fd"_a, nb::kw_only(), "entries"_a, "key"_a, "stamp"_a,
          "Makes an empty file a cache of nothing. OSError: it cannot be written.");
    m.def("cache_kind", &kind, "fd"_a, nb::kw_only(), "entries"_a, "key"_a, "stamp"_a,
          "What a file is: \"ours\", \"damaged\", \"other version\", \"other key\" or \"other stamp\".");
    nb::class_<PyStore>(m, "Store", "Entries of a file that is \"ours\"; its descriptor is owned from now on.")
        .def(
            "__init__",
            [](PyStore* self, int fd, std::uint64_t entries, std::uint64_t limit_bytes) {
                check_entries(entries);
                new (self) PyStore{std::make_shared<Store>(fd, entries, limit_bytes)};
            },
            "fd"_a, nb::kw_only(), "entries"_a, "limit_bytes"_a)
        .def("get", &get, "index"_a, "The bytes that are kept under a number, or None.")
        .def("put", &put, "index"_a, "data"_a, "Whether bytes are kept from now on.")
        .def("counts", &counts)
        .def_prop_ro("used_bytes", [](const PyStore& self) { return self.store->used_bytes(); })
        .def_prop_ro("stopped", [](const PyStore& self) { return self.store->stopped(); });
}

}  // namespace headrace
