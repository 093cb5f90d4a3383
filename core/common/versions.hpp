// Codec versions of this build of the core, which determine decoded bits. Part of every saved state.
#pragma once

#include <string>

namespace headrace {

// For example "libjpeg-turbo 2.1.5, libdeflate 1.14".
std::string codec_versions();

}  // namespace headrace
