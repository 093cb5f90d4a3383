#include "cache.hpp"

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bindings.hpp"
#include "numpy.hpp"

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

std::uint64_t empty_bytes(std::uint64_t entries, bool reuses) {
    return cache_data_at(entries) + (reuses ? SpaceMap::kMapBytes : 0);
}

std::uint32_t version_of(bool reuses) { return reuses ? kReusedCacheVersion : kCacheVersion; }

void make(int fd, std::uint64_t entries, const nb::bytes& key, const nb::bytes& stamp, bool reuses) {
    check_entries(entries);
    const int error = CacheFile(fd).make(entries, digest_of(key), digest_of(stamp), version_of(reuses));
    if (error != 0) raise_errno(error);
}

const char* kind(int fd, std::uint64_t entries, const nb::bytes& key, const nb::bytes& stamp, bool reuses) {
    static const char* const names[] = {"ours", "damaged", "other version", "other key", "other stamp"};
    return names[static_cast<int>(CacheFile(fd).kind(entries, digest_of(key), digest_of(stamp), version_of(reuses)))];
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

// Scoped buffer view of a Python object.
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

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = std::span<const std::int64_t>;

Ints indices_of(const Store& store, const In<std::int64_t>& indices) {
    const Ints all(indices.data(), indices.shape(0));
    for (const std::int64_t index : all) check_index(store, static_cast<std::uint64_t>(index));
    return all;
}

// Appends the entry with a number. Returns its size in bytes, or -1 if absent.
std::int64_t append(Store& store, std::uint64_t index, std::string& data) {
    const std::optional<Store::Item> item = store.find(index);
    if (!item) return -1;
    const std::size_t at = data.size();
    data.resize(at + item->bytes);
    const Part part(reinterpret_cast<std::uint8_t*>(data.data()) + at, item->bytes);
    if (store.read(index, *item, {&part, 1})) return item->bytes;
    data.resize(at);
    return -1;
}

nb::tuple get_many(PyStore& self, const In<std::int64_t>& indices) {
    const Ints all = indices_of(*self.store, indices);
    std::string data;
    std::vector<std::int64_t> lengths(all.size());
    {
        nb::gil_scoped_release released;
        std::transform(all.begin(), all.end(), lengths.begin(), [&](std::int64_t index) {
            return append(*self.store, static_cast<std::uint64_t>(index), data);
        });
    }
    return nb::make_tuple(to_numpy_bytes(std::move(data)), to_numpy(std::move(lengths)));
}

nb::object has_many(PyStore& self, const In<std::int64_t>& indices) {
    const Ints all = indices_of(*self.store, indices);
    std::vector<std::uint8_t> there(all.size());
    {
        nb::gil_scoped_release released;
        std::transform(all.begin(), all.end(), there.begin(), [&](std::int64_t index) {
            return static_cast<std::uint8_t>(self.store->peek(static_cast<std::uint64_t>(index)).has_value());
        });
    }
    return nb::cast(to_numpy(std::move(there)));
}

void check_lengths(Ints lengths, std::size_t entries, std::size_t bytes) {
    if (lengths.size() != entries) throw nb::value_error("expected a length for each index");
    std::size_t left = bytes;
    for (const std::int64_t length : lengths) {
        if (length < 0 || static_cast<std::size_t>(length) > left)
            throw nb::value_error("expected lengths of all data");
        left -= static_cast<std::size_t>(length);
    }
    if (left != 0) throw nb::value_error("expected lengths of all data");
}

std::int64_t put_many(PyStore& self, const In<std::int64_t>& indices, const In<std::uint8_t>& data,
                      const In<std::int64_t>& lengths) {
    const Ints all = indices_of(*self.store, indices);
    check_lengths({lengths.data(), lengths.shape(0)}, all.size(), data.shape(0));
    nb::gil_scoped_release released;
    std::int64_t kept = 0;
    const std::uint8_t* from = data.data();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const ConstPart part(from, static_cast<std::size_t>(lengths.data()[i]));
        kept += self.store->put(static_cast<std::uint64_t>(all[i]), {&part, 1});
        from += part.size();
    }
    return kept;
}

std::uint64_t evict(PyStore& self, const In<std::int64_t>& indices) {
    const Ints all = indices_of(*self.store, indices);
    nb::gil_scoped_release released;
    return self.store->evict(all);
}

nb::object taken(const PyStore& self, std::uint64_t first, std::uint64_t count) {
    const std::uint64_t entries = self.store->entries();
    if (first > entries || count > entries - first) throw nb::value_error("expected entries of this store");
    std::vector<std::uint32_t> bytes;
    {
        nb::gil_scoped_release released;
        bytes = self.store->taken(first, count);
    }
    return nb::cast(to_numpy(std::move(bytes)));
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
    m.def("cache_bytes", &empty_bytes, "entries"_a, nb::kw_only(), "reuses"_a = false,
          "Bytes of a cache's file in which nothing is kept.");
    m.def("make_cache", &make, "fd"_a, nb::kw_only(), "entries"_a, "key"_a, "stamp"_a, "reuses"_a = false,
          "Makes an empty file a cache of nothing. OSError: it cannot be written.");
    m.def("cache_kind", &kind, "fd"_a, nb::kw_only(), "entries"_a, "key"_a, "stamp"_a, "reuses"_a = false,
          "What a file is: \"ours\", \"damaged\", \"other version\", \"other key\" or \"other stamp\".");
    nb::class_<PyStore>(m, "Store", "Entries of a file that is \"ours\"; its descriptor is owned from now on.")
        .def(
            "__init__",
            [](PyStore* self, int fd, std::uint64_t entries, std::uint64_t limit_bytes, bool reuses) {
                check_entries(entries);
                const auto space = reuses ? Store::Space::reused : Store::Space::grows;
                new (self) PyStore{std::make_shared<Store>(fd, entries, limit_bytes, space)};
            },
            "fd"_a, nb::kw_only(), "entries"_a, "limit_bytes"_a, "reuses"_a = false)
        .def("get", &get, "index"_a, "The bytes that are kept under a number, or None.")
        .def("put", &put, "index"_a, "data"_a, "Whether bytes are kept from now on.")
        .def("get_many", &get_many, "indices"_a,
             "(data uint8, lengths int64): what is kept under each number, on end; -1 where nothing is.")
        .def("has_many", &has_many, "indices"_a, "uint8: 1 where something is kept under a number. Uncounted.")
        .def("put_many", &put_many, "indices"_a, "data"_a, "lengths"_a,
             "How many of the entries, on end, are kept now.")
        .def("evict", &evict, "indices"_a,
             "Drops entries, so that their space is used again. Bytes that are free now; 0 where space only grows.")
        .def("taken", &taken, "first"_a, "count"_a, "uint32: bytes that each entry takes, 0 where nothing is kept.")
        .def(
            "resume", [](PyStore& self) { self.store->resume(); }, "Admits again after CACHE_FULL.")
        .def(
            "recover", [](PyStore& self) { self.store->recover(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Frees what killed processes had taken, unless another opening of a file on a disk is in use.")
        .def("counts", &counts)
        .def_prop_ro("used_bytes", [](const PyStore& self) { return self.store->used_bytes(); })
        .def_prop_ro("room_bytes", [](const PyStore& self) { return self.store->room_bytes(); })
        .def_prop_ro("stopped", [](const PyStore& self) { return self.store->stopped(); });
}

}  // namespace headrace
