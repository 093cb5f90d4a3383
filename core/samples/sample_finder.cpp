#include "samples/sample_finder.hpp"

#include <algorithm>
#include <stdexcept>

#include "common/fault.hpp"
#include "samples/grouping.hpp"
#include "samples/key.hpp"

namespace headrace {

void SampleFinder::add(const ArchiveSamples& archive) {
    if (archive.first.empty() || archive.name_offsets.empty() || archive.member.size() != archive.extension.size())
        throw Fault(Code::corrupt, "the arrays of an archive's samples do not fit each other");
    archives_.push_back(archive);
    starts_.push_back(starts_.back() + static_cast<std::int64_t>(archive.first.size()) - 1);
}

FoundMember SampleFinder::find(std::int64_t id, std::span<const std::uint8_t> ranks) const {
    if (ranks.size() != archives_.size() * max_extensions)
        throw Fault(Code::corrupt, "expected 256 ranks for each archive");
    const auto [archive, first, end] = place(id);
    const ArchiveSamples& samples = archives_[archive];
    const auto own = ranks.subspan(archive * max_extensions, max_extensions);
    FoundMember best{archive, -1};
    std::uint8_t best_rank = not_in_column;
    for (std::uint32_t i = first; i < end; ++i) {
        const std::uint8_t rank = own[samples.extension[i]];
        if (rank < best_rank) {
            best_rank = rank;
            best.member = samples.member[i];
        }
    }
    return best;
}

std::string_view SampleFinder::key(std::int64_t id) const {
    const auto [archive, first, end] = place(id);
    const ArchiveSamples& samples = archives_[archive];
    const std::int64_t member = first < end ? samples.member[first] : -1;
    if (member < 0 || static_cast<std::uint64_t>(member) + 1 >= samples.name_offsets.size())
        throw Fault(Code::corrupt, "a sample has no member");
    const std::uint64_t start = samples.name_offsets[member], stop = samples.name_offsets[member + 1];
    if (start > stop || stop > samples.names.size()) throw Fault(Code::corrupt, "a name lies outside the names");
    return split_name(samples.names.substr(start, stop - start), samples.last_dot).key;
}

SampleFinder::Place SampleFinder::place(std::int64_t id) const {
    if (id < 0 || id >= size())
        throw std::out_of_range("sample " + std::to_string(id) + " of " + std::to_string(size()));
    const std::int64_t archive = std::upper_bound(starts_.begin(), starts_.end(), id) - starts_.begin() - 1;
    const ArchiveSamples& samples = archives_[archive];
    const std::int64_t at = id - starts_[archive];
    const std::uint32_t first = samples.first[at], end = samples.first[at + 1];
    if (first > end || end > samples.member.size()) throw Fault(Code::corrupt, "a sample lies outside the members");
    return {archive, first, end};
}

}  // namespace headrace
