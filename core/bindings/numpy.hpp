// Conversion of the core's containers to NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace headrace {

// Moves a container to a NumPy array without a copy.
template <typename Container>
auto to_numpy(Container&& from) {
    using Held = std::remove_cvref_t<Container>;
    auto* held = new Held(std::move(from));
    nanobind::capsule owner(held, [](void* p) noexcept { delete static_cast<Held*>(p); });
    return nanobind::ndarray<nanobind::numpy, typename Held::value_type, nanobind::ndim<1>>(held->data(),
                                                                                            {held->size()}, owner);
}

inline auto to_numpy_bytes(std::string&& text) {
    auto* held = new std::string(std::move(text));
    nanobind::capsule owner(held, [](void* p) noexcept { delete static_cast<std::string*>(p); });
    return nanobind::ndarray<nanobind::numpy, std::uint8_t, nanobind::ndim<1>>(held->data(), {held->size()}, owner);
}

}  // namespace headrace
