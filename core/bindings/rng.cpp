#include "bindings.hpp"

namespace headrace {

void bind_rng(nanobind::module_&) {}

}  // namespace headrace
