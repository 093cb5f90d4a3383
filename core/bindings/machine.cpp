// Bindings for the machine: instruction-set levels, codecs, freed memory.
#include <string>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "common/freed_memory.hpp"
#include "common/level.hpp"
#include "common/versions.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

void bind_machine(nb::module_& m) {
    m.def("best_level", [] { return std::string(level_name(best_level())); });
    m.def(
        "levels",
        [] {
            std::vector<std::string> names;
            for (int i = 0; i <= static_cast<int>(best_level()); ++i) {
                names.emplace_back(level_name(static_cast<Level>(i)));
            }
            return names;
        },
        "The instruction-set levels that this processor has, the slowest first.");
    m.def("parse_level", [](const std::string& name) { return std::string(level_name(parse_level(name))); }, "name"_a);
    m.def("codec_versions", &codec_versions);
    m.def("return_freed_memory", &return_freed_memory, nb::call_guard<nb::gil_scoped_release>(),
          "Gives memory back to the system that was freed and that the C library keeps.");
}

}  // namespace headrace
