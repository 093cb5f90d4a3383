// Freed memory that the C library retains for later allocations.
#pragma once

namespace headrace {

// Returns freed memory to the system if the C library supports it. Otherwise a process stays large after work with a
// high peak, such as building an index.
void return_freed_memory();

}  // namespace headrace
