#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bindings.hpp"
#include "rng/hash.hpp"
#include "rng/permutation.hpp"
#include "rng/philox.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

template <typename T>
nb::ndarray<nb::numpy, T> owned(std::unique_ptr<T[]> values, const std::vector<std::size_t>& shape) {
    nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(values.release(), shape.size(), shape.data(), owner);
}

using Positions = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, std::int64_t> permute(std::uint64_t n, std::uint64_t key, const Positions& positions,
                                             bool inverse) {
    if (n < 1 || n > Permutation::kMaxLength) throw nb::value_error("permute: expected 1 <= n <= 2**62");
    const std::size_t count = positions.shape(0);
    const std::int64_t* in = positions.data();
    const auto outside = [n](std::int64_t at) { return at < 0 || static_cast<std::uint64_t>(at) >= n; };
    if (std::any_of(in, in + count, outside)) throw nb::value_error("permute: expected every position in range(n)");
    auto out = std::make_unique_for_overwrite<std::int64_t[]>(count);
    {
        nb::gil_scoped_release release;
        const Permutation permutation(n, key);
        if (inverse)
            permutation.invert(in, out.get(), count);
        else
            permutation.apply(in, out.get(), count);
    }
    return owned(std::move(out), {count});
}

// Like permute, with a separate permutation for each position: of range(lengths[i]) under hash64(key, streams[i]).
nb::ndarray<nb::numpy, std::int64_t> permute_each(const Positions& lengths, std::uint64_t key, const Positions& streams,
                                                  const Positions& positions) {
    const std::size_t count = positions.shape(0);
    if (lengths.shape(0) != count || streams.shape(0) != count)
        throw nb::value_error("permute_each: expected lengths, streams and positions of one length");
    const std::int64_t *n = lengths.data(), *stream = streams.data(), *in = positions.data();
    for (std::size_t i = 0; i < count; ++i)
        if (in[i] < 0 || in[i] >= n[i] || static_cast<std::uint64_t>(n[i]) > Permutation::kMaxLength)
            throw nb::value_error("permute_each: expected 0 <= position < length <= 2**62");
    auto out = std::make_unique_for_overwrite<std::int64_t[]>(count);
    {
        nb::gil_scoped_release release;
        for (std::size_t first = 0, end; first < count; first = end) {
            const std::int64_t length = n[first], number = stream[first];
            for (end = first + 1; end < count && n[end] == length && stream[end] == number;) ++end;
            // The walk in range(4) ends only at 0: four times the usual work for a known result.
            if (length == 1) {
                std::fill(&out[first], out.get() + end, 0);
                continue;
            }
            const Permutation permutation(static_cast<std::uint64_t>(length),
                                          hash64(key, static_cast<std::uint64_t>(number)));
            permutation.apply(in + first, &out[first], end - first);
        }
    }
    return owned(std::move(out), {count});
}

using Counters = nb::ndarray<const std::uint32_t, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, std::uint32_t> philox(std::uint64_t key, const Counters& counter) {
    if (counter.ndim() < 1 || counter.shape(counter.ndim() - 1) != 4)
        throw nb::value_error("philox: expected counter of shape [..., 4]");
    auto out = std::make_unique_for_overwrite<std::uint32_t[]>(counter.size());
    const std::uint32_t* in = counter.data();
    for (std::size_t i = 0; i < counter.size(); i += 4) {
        const PhiloxBlock block = philox4x32({in[i], in[i + 1], in[i + 2], in[i + 3]}, key);
        std::copy(block.begin(), block.end(), &out[i]);
    }
    std::vector<std::size_t> shape(counter.ndim());
    for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = counter.shape(i);
    return owned(std::move(out), shape);
}

}  // namespace

void bind_rng(nb::module_& m) {
    m.def("hash64", &hash64, "a"_a, "b"_a, "A 64-bit hash of two unsigned 64-bit words; a bijection of each.");
    m.def("permute", &permute, "n"_a, "key"_a, nb::arg("positions").noconvert(), nb::kw_only(), "inverse"_a = false,
          "The indices (int64) at these positions (int64[N]) of a keyed permutation of range(n); `inverse`: the "
          "positions of these indices.");
    m.def(
        "permute_each", &permute_each, nb::arg("lengths").noconvert(), "key"_a, nb::arg("streams").noconvert(),
        nb::arg("positions").noconvert(),
        "As permute, each position (int64[N]) in the permutation of range(lengths[i]) under hash64(key, streams[i]).");
    m.def("philox", &philox, "key"_a, nb::arg("counter").noconvert(),
          "Philox4x32-10: 4 random words (uint32[..., 4]) for each counter (uint32[..., 4]).");
}

}  // namespace headrace
