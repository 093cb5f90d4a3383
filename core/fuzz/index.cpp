// Indexes from files that anyone may have written: names, their hash table and samples of members. Whatever their
// numbers, looking something up gives an answer that is there, or says that they are damaged.
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"
#include "names/name_table.hpp"
#include "samples/grouping.hpp"
#include "samples/sample_finder.hpp"

namespace headrace::fuzz {
namespace {

// Mostly small numbers, as those of a small index are; some of any size.
template <typename T>
std::vector<T> numbers(Input& input, std::size_t most) {
    std::vector<T> values(input.byte() % (most + 1));
    for (T& value : values) {
        const std::uint8_t byte = input.byte();
        value = byte < 250 ? static_cast<T>(byte % 24) : static_cast<T>(input.take<std::uint64_t>());
    }
    return values;
}

// Numbers that rise, as sound offsets do, unless they are told not to.
template <typename T>
std::vector<T> offsets(Input& input, std::size_t most) {
    std::vector<T> values = numbers<T>(input, most);
    if (input.byte() % 4 != 0) {
        for (std::size_t i = 1; i < values.size(); ++i) values[i] = static_cast<T>(values[i] % 4 + values[i - 1]);
    }
    return values;
}

void find_names(Input& input, std::string_view text, const std::vector<std::uint64_t>& name_offsets) {
    const auto starts = offsets<std::uint32_t>(input, 33);
    const auto order = numbers<std::int32_t>(input, 24);
    const NameLookup lookup{{text, name_offsets}, starts, order};
    const auto name = text.substr(0, input.byte() % (text.size() + 1));
    const auto before = static_cast<std::int64_t>(input.take<std::uint16_t>());
    try {
        const std::int64_t found = lookup.find(name, before);
        require(found < 0 || (found < before && lookup.names.at(found) == name), "an id of that name");
        const std::int64_t path = lookup.find_path(name);
        require(path < 0 || path + 1 < static_cast<std::int64_t>(name_offsets.size()), "an id that is there");
    } catch (const Fault& fault) {
        require(fault.code == Code::corrupt, "no other fault: " + std::string(fault.what()));
    }
}

void find_samples(Input& input, std::string_view text, const std::vector<std::uint64_t>& name_offsets) {
    const auto first = offsets<std::uint32_t>(input, 12);
    const auto member = numbers<std::int32_t>(input, 24);
    auto extension = numbers<std::uint8_t>(input, 24);
    if (input.byte() % 8 != 0) extension.resize(member.size());
    std::vector<std::uint8_t> ranks(2 * max_extensions, not_in_column);
    for (std::size_t i = 0; i < 16; ++i) ranks[i] = input.byte() % 4;
    SampleFinder finder;
    try {
        finder.add({text, name_offsets, first, member, extension});
        finder.add({text, name_offsets, first, member, extension});
    } catch (const Fault& fault) {
        require(fault.code == Code::corrupt, "no other fault: " + std::string(fault.what()));
        return;
    }
    for (std::int64_t id = -1; id <= finder.size(); ++id) {
        try {
            const FoundMember found = finder.find(id, ranks);
            require(found.archive >= 0 && found.archive < 2, "an archive that is there");
            require(text.empty() || finder.key(id).size() <= text.size(), "a key of its names");
        } catch (const Fault& fault) {
            require(fault.code == Code::corrupt, "no other fault: " + std::string(fault.what()));
        } catch (const std::out_of_range&) {
            require(id < 0 || id >= finder.size(), "an error for ids that are none alone");
        }
    }
}

void run(Input input) {
    const auto name_offsets = offsets<std::uint64_t>(input, 24);
    const bool samples = input.byte() % 2 == 1;
    // The text is made of the same bytes as the numbers that follow: neither knows of the other.
    const std::string text(input.rest().begin(), input.rest().end());
    samples ? find_samples(input, text, name_offsets) : find_names(input, text, name_offsets);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
