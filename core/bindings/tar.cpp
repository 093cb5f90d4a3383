#include "bindings.hpp"

namespace headrace {

void bind_tar(nanobind::module_&) {}

}  // namespace headrace
