// What decides the bits: the codecs behind one build of the core. Part of every saved state.
#pragma once

#include <string>

namespace headrace {

// "libjpeg-turbo 2.1.5, libdeflate 1.14"
std::string codec_versions();

}  // namespace headrace
