// Names from Python: one blob and its offsets.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "common/fault.hpp"

namespace headrace {

using BytesIn = nanobind::ndarray<const std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using OffsetsIn = nanobind::ndarray<const std::uint64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

inline std::string_view text_of(const BytesIn& names) {
    return {reinterpret_cast<const char*>(names.data()), names.shape(0)};
}

// Throws Fault(corrupt) unless the offsets ascend and are within the names.
inline void check_offsets(std::string_view names, std::span<const std::uint64_t> offsets) {
    if (offsets.empty()) throw Fault(Code::corrupt, "expected at least one name offset");
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
        if (offsets[i] > offsets[i + 1] || offsets[i + 1] > names.size())
            throw Fault(Code::corrupt, "name_offsets must rise and stay within names");
}

// Raises a fault as a Python exception. Messages contain names, which may not be UTF-8.
[[noreturn]] void raise(PyObject* kind, const Fault& fault);

}  // namespace headrace
