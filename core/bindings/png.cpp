#include "bindings.hpp"

namespace headrace {

void bind_png(nanobind::module_&) {}

}  // namespace headrace
