// Names of zip members as UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// Converts `raw` up to its first zero byte to UTF-8, from code page 437 unless it is UTF-8 already.
std::string zip_name(std::string_view raw, bool is_utf8);

}  // namespace headrace
