// What Python says about an image field, as the core takes it; and what the core says, as Python takes it.
#pragma once

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "resample/resampler.hpp"
#include "resample/target.hpp"

namespace headrace {

// The format but for its size. ValueError for what does not fit.
inline Format parse_format(int channels, const std::string& dtype, bool planar, const std::vector<float>& subtract,
                           const std::vector<float>& divide, const std::vector<int>& fill) {
    Format f;
    if (channels != 1 && channels != 3) throw nanobind::value_error("expected 1 or 3 channels");
    if (subtract.size() != 3 || divide.size() != 3 || fill.size() != 3)
        throw nanobind::value_error("expected 3 values");
    f.channels = channels;
    f.planar = planar;
    const char* names[] = {"uint8", "float32", "float16", "bfloat16"};
    int found = -1;
    for (int i = 0; i < 4; ++i) {
        if (dtype == names[i]) found = i;
    }
    if (found < 0) throw nanobind::value_error("expected dtype uint8, float32, float16 or bfloat16");
    f.dtype = static_cast<DType>(found);
    for (int c = 0; c < 3; ++c) {
        f.subtract[c] = subtract[c];
        f.divide[c] = divide[c];
        f.fill[c] = static_cast<std::uint8_t>(fill[c]);
    }
    return f;
}

inline Filter parse_filter(const std::string& name) {
    if (name != "triangle" && name != "nearest") throw nanobind::value_error("expected filter triangle or nearest");
    return name == "nearest" ? Filter::nearest : Filter::triangle;
}

// Paths in messages need not be UTF-8.
inline nanobind::object text_of(const std::string& why) {
    return nanobind::steal<nanobind::object>(
        PyUnicode_DecodeUTF8(why.data(), static_cast<Py_ssize_t>(why.size()), "backslashreplace"));
}

}  // namespace headrace
