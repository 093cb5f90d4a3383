#include "bindings.hpp"

namespace headrace {

void bind_view(nanobind::module_&) {}

}  // namespace headrace
