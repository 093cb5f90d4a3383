// Assertion of a property for any input. On failure the target aborts as after a sanitizer report, and libFuzzer saves
// the input.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace headrace::fuzz {

inline void require(bool holds, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "headrace: a property does not hold: %s\n", what.c_str());
    std::abort();
}

}  // namespace headrace::fuzz
