// Memory that was freed, and that the C library keeps for what may come.
#pragma once

namespace headrace {

// Gives it back to the system, where the C library can be asked to. After work that takes much memory once, such as
// building an index, a process would otherwise stay that large.
void return_freed_memory();

}  // namespace headrace
