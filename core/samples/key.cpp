#include "samples/key.hpp"

namespace headrace {
namespace {

// webdataset skips names that match ^__[^/]*__($|/).
bool is_metadata(std::string_view name) {
    const std::string_view first = name.substr(0, name.find('/'));
    return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

}  // namespace

std::string_view without_dot_slash(std::string_view name) {
    while (name.starts_with("./")) name.remove_prefix(2);
    return name;
}

MemberName split_name(std::string_view name, bool last_dot) {
    name = without_dot_slash(name);
    if (is_metadata(name)) return {{}, {}, false, true};
    const std::size_t base = name.rfind('/') + 1;  // npos + 1 is 0
    std::size_t dot = name.find('.', base);
    if (dot == base) return {{}, {}, true, false};
    if (last_dot && dot != std::string_view::npos) dot = name.rfind('.');
    if (dot == std::string_view::npos || dot + 1 == name.size()) return {};
    return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace headrace
