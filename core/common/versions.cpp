#include "common/versions.hpp"

#include <libdeflate.h>

#include <jpeglib.h>
#include <cstdio>

namespace headrace {

#define HEADRACE_TEXT_(x) #x
#define HEADRACE_TEXT(x) HEADRACE_TEXT_(x)

std::string codec_versions() {
    return "libjpeg-turbo " HEADRACE_TEXT(LIBJPEG_TURBO_VERSION) ", libdeflate " LIBDEFLATE_VERSION_STRING;
}

}  // namespace headrace
