#include "samples/grouping.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/fault.hpp"
#include "names/name_table.hpp"
#include "samples/key.hpp"

namespace headrace {
namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    return out;
}

bool is_regular(std::uint8_t type) { return type == '0' || type == '7'; }

// Numbering of texts in order of first appearance.
class Numbering {
public:
    // Returns the text's number, and true if it is new.
    std::pair<std::int32_t, bool> number(std::string_view text) {
        // Fast path: neighbours mostly have the same text.
        const bool is_new = latest_ != text && numbers_.try_emplace(std::string(text), next()).second;
        if (latest_ != text) {
            latest_ = text;
            number_ = numbers_.at(*latest_);
        }
        return {number_, is_new};
    }

private:
    std::int32_t next() const { return static_cast<std::int32_t>(numbers_.size()); }

    std::unordered_map<std::string, std::int32_t> numbers_;
    std::optional<std::string> latest_;
    std::int32_t number_ = -1;
};

// A member that belongs to a sample.
struct Entry {
    std::int32_t member;
    std::uint8_t extension;
    bool opens_run;
};

// Run of consecutive members with the same key, by its first member: half the size of a string_view of the key.
struct Run {
    std::int32_t member;
    std::uint32_t key_bytes;
};

class Grouper {
public:
    Samples samples;

    Grouper(const Names& names, bool last_dot) : names_(names), last_dot_(last_dot) {}

    void add(std::int32_t member) {
        const MemberName split = split_name(names_.at(member), last_dot_);
        samples.metadata += split.metadata;
        samples.hidden += split.hidden;
        samples.without_extension += split.key.empty() && !split.metadata && !split.hidden;
        if (split.key.empty()) return;
        const int order = runs_.empty() ? 1 : split.key.compare(key(runs_.size() - 1));
        rising_ = rising_ && order >= 0;
        if (order != 0) runs_.push_back({member, static_cast<std::uint32_t>(split.key.size())});
        entries_.push_back({member, extension(split.extension), order != 0});
    }

    // Call after all members were added.
    void finish() {
        number_samples();
        std::vector<std::uint32_t> end = place_samples();
        each_entry([&](const Entry& entry, std::uint32_t sample) { place(entry, sample, end[sample]); });
        close_gaps(end);
    }

private:
    std::uint8_t extension(std::string_view text) {
        std::string name = lower(text);
        const auto [number, is_new] = extension_numbers_.number(name);
        if (is_new) {
            if (samples.extensions.size() == max_extensions)
                throw Fault(Code::limit, "more than max_extensions = " + std::to_string(max_extensions) +
                                             " different extensions, such as '" + samples.extensions.back() +
                                             "' and '" + name + "'");
            samples.extensions.push_back(std::move(name));
        }
        return static_cast<std::uint8_t>(number);
    }

    // Assigns one sample number to all runs of a key, which may be apart, and a folder to each sample.
    void number_samples() {
        const std::vector<std::int32_t> like = first_runs();
        std::uint32_t count = 0;
        sample_of_.reserve(runs_.size());
        for (std::size_t run = 0; run < runs_.size(); ++run) {
            const bool is_new = like[run] == static_cast<std::int32_t>(run);
            if (is_new) samples.folder_of.push_back(folder(key(run)));
            sample_of_.push_back(is_new ? count++ : sample_of_[like[run]]);
        }
    }

    // Returns, for each run, the first run with the same key.
    std::vector<std::int32_t> first_runs() const {
        std::vector<std::int32_t> like(runs_.size());
        std::iota(like.begin(), like.end(), 0);
        if (rising_) return like;  // true of most archives: no key repeats
        // Equal keys are adjacent in this order, with ascending ids.
        const auto order = build_name_table(runs_.size(), [this](std::int64_t run) { return key(run); }).order;
        for (std::size_t i = 1; i < order.size(); ++i)
            if (key(order[i]) == key(order[i - 1])) like[order[i]] = like[order[i - 1]];
        return like;
    }

    std::int32_t folder(std::string_view key) {
        const std::size_t slash = key.find('/');
        if (slash == std::string_view::npos) return -1;
        const auto [number, is_new] = folder_numbers_.number(key.substr(0, slash));
        if (is_new) {
            samples.folders += key.substr(0, slash);
            samples.folder_offsets.push_back(samples.folders.size());
        }
        return number;
    }

    // Calls `use(entry, sample)` for each entry.
    template <typename F>
    void each_entry(F use) const {
        std::size_t runs = 0;
        for (const Entry& entry : entries_) {
            runs += entry.opens_run;
            use(entry, sample_of_[runs - 1]);
        }
    }

    // Allocates a slot for every member of each sample. Returns the position of each sample's next member.
    std::vector<std::uint32_t> place_samples() {
        samples.first.assign(samples.folder_of.size() + 1, 0);
        each_entry([&](const Entry&, std::uint32_t sample) { ++samples.first[sample + 1]; });
        std::partial_sum(samples.first.begin(), samples.first.end(), samples.first.begin());
        samples.member.resize(entries_.size());
        samples.extension.resize(entries_.size());
        return {samples.first.begin(), samples.first.end() - 1};
    }

    // Takes at most max_extensions steps, however many duplicates there are.
    void place(const Entry& entry, std::uint32_t sample, std::uint32_t& end) {
        const auto from = samples.extension.begin() + samples.first[sample];
        const auto to = samples.extension.begin() + end;
        const auto same = std::find(from, to, entry.extension);
        samples.member[same - samples.extension.begin()] = entry.member;
        *same = entry.extension;
        same == to ? ++end : ++samples.duplicates;
    }

    // Removes the unused slots that duplicates left at the ends of samples.
    void close_gaps(const std::vector<std::uint32_t>& end) {
        std::uint32_t to = 0;
        for (std::size_t i = 0; i < end.size(); ++i) {
            const std::uint32_t from = std::exchange(samples.first[i], to);
            std::copy(samples.member.begin() + from, samples.member.begin() + end[i], samples.member.begin() + to);
            std::copy(samples.extension.begin() + from, samples.extension.begin() + end[i],
                      samples.extension.begin() + to);
            to += end[i] - from;
        }
        samples.first.back() = to;
        samples.member.resize(to);
        samples.extension.resize(to);
    }

    std::string_view key(std::size_t run) const {
        return without_dot_slash(names_.at(runs_[run].member)).substr(0, runs_[run].key_bytes);
    }

    Names names_;
    bool last_dot_;
    std::vector<Run> runs_;
    bool rising_ = true;  // true while run keys ascend bytewise
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> sample_of_;  // for each run
    Numbering extension_numbers_, folder_numbers_;
};

}  // namespace

Samples group_members(const Names& names, std::span<const std::uint8_t> types, bool last_dot) {
    if (types.size() > max_names) throw Fault(Code::limit, "more than max_names = 2147483647 members");
    Grouper grouper(names, last_dot);
    for (std::size_t i = 0; i < types.size(); ++i)
        if (is_regular(types[i])) grouper.add(static_cast<std::int32_t>(i));
    grouper.finish();
    return std::move(grouper.samples);
}

}  // namespace headrace
