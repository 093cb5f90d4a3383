#include "bindings.hpp"

namespace headrace {

void bind_batch(nanobind::module_&) {}

}  // namespace headrace
