#include "tar/pax.hpp"

#include <charconv>

#include "common/fault.hpp"

namespace headrace {
namespace {

template <typename T>
T number(std::string_view text, const char* what) {
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0)
        throw Fault(Code::corrupt, std::string("expected a number as ") + what + " of a PAX record, got '" +
                                       std::string(text.substr(0, 40)) + "'");
    return value;
}

void keep(std::string_view key, std::string_view value, PaxRecords& records) {
    if (key == "path") records.path = std::string(value);
    if (key == "linkpath") records.link_path = std::string(value);
    if (key == "size") records.size = number<std::int64_t>(value, "the size");
    if (key.starts_with("GNU.sparse.")) records.sparse = true;
}

}  // namespace

void read_pax_records(std::string_view text, PaxRecords& records) {
    while (!text.empty() && text[0] != '\0') {
        const std::size_t space = text.find(' ');
        if (space == std::string_view::npos) throw Fault(Code::corrupt, "a PAX record has no length");
        const auto length = number<std::int64_t>(text.substr(0, space), "the length");
        if (length <= static_cast<std::int64_t>(space) + 1 || length > static_cast<std::int64_t>(text.size()))
            throw Fault(Code::corrupt, "a PAX record of " + std::to_string(length) + " bytes does not fit the " +
                                           std::to_string(text.size()) + " bytes there");
        const std::string_view record = text.substr(space + 1, length - space - 1);
        const std::size_t equals = record.find('=');
        if (equals == std::string_view::npos || !record.ends_with('\n'))
            throw Fault(Code::corrupt, "a PAX record is not of the form key=value");
        keep(record.substr(0, equals), record.substr(equals + 1, record.size() - equals - 2), records);
        text.remove_prefix(length);
    }
}

}  // namespace headrace
