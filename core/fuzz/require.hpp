// A property that must hold for any input. Where one does not, the target ends as after a sanitizer's report, and
// libFuzzer keeps the input.
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
