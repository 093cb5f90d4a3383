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

// Numbers for texts, in order of first appearance.
class Numbering {
public:
    // The text's number, and whether it is new.
    std::pair<std::int32_t, bool> number(std::string_view text) {
        // Neighbours mostly share one.
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
    std::uint32_t run;  // members in a row that share a key
};

class Grouper {
public:
    Samples samples;

    void add(std::int32_t member, std::string_view name) {
        const MemberName split = split_name(name);
        samples.metadata += split.metadata;
        samples.hidden += split.hidden;
        samples.without_extension += split.key.empty() && !split.metadata && !split.hidden;
        if (split.key.empty()) return;
        if (keys_.empty() || keys_.back() != split.key) keys_.push_back(split.key);
        entries_.push_back({member, extension(split.extension), static_cast<std::uint32_t>(keys_.size() - 1)});
    }

    // Once all members are in.
    void finish() {
        number_samples();
        std::vector<std::uint32_t> end = place_samples();
        for (const Entry& entry : entries_) place(entry, end[sample_of_[entry.run]]);
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

    // Gives runs of one key, which may lie apart, one sample's number, and each sample its folder.
    void number_samples() {
        const std::vector<std::int32_t> like = first_runs();
        std::uint32_t count = 0;
        sample_of_.reserve(keys_.size());
        for (std::size_t run = 0; run < keys_.size(); ++run) {
            const bool is_new = like[run] == static_cast<std::int32_t>(run);
            if (is_new) samples.folder_of.push_back(folder(keys_[run]));
            sample_of_.push_back(is_new ? count++ : sample_of_[like[run]]);
        }
    }

    // For each run, the first of the same key.
    std::vector<std::int32_t> first_runs() const {
        std::vector<std::int32_t> like(keys_.size());
        const std::vector<std::int32_t> order = build_name_table(keys_).order;  // equal keys are neighbours, and rise
        for (std::size_t i = 0; i < order.size(); ++i) {
            const bool is_new = i == 0 || keys_[order[i]] != keys_[order[i - 1]];
            like[order[i]] = is_new ? order[i] : like[order[i - 1]];
        }
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

    // Room for every member of each sample. Returns where each sample's next one goes.
    std::vector<std::uint32_t> place_samples() {
        samples.first.assign(samples.folder_of.size() + 1, 0);
        for (const Entry& entry : entries_) ++samples.first[sample_of_[entry.run] + 1];
        std::partial_sum(samples.first.begin(), samples.first.end(), samples.first.begin());
        samples.member.resize(entries_.size());
        samples.extension.resize(entries_.size());
        return {samples.first.begin(), samples.first.end() - 1};
    }

    // At most max_extensions steps, however many duplicates there are.
    void place(const Entry& entry, std::uint32_t& end) {
        const auto from = samples.extension.begin() + samples.first[sample_of_[entry.run]];
        const auto to = samples.extension.begin() + end;
        const auto same = std::find(from, to, entry.extension);
        samples.member[same - samples.extension.begin()] = entry.member;
        *same = entry.extension;
        same == to ? ++end : ++samples.duplicates;
    }

    // Duplicates have left room at the ends of their samples.
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

    std::vector<std::string_view> keys_;  // of each run, into the caller's names
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> sample_of_;  // for each run
    Numbering extension_numbers_, folder_numbers_;
};

}  // namespace

Samples group_members(std::span<const std::string_view> names, std::span<const std::uint8_t> types) {
    if (names.size() > max_names) throw Fault(Code::limit, "more than max_names = 2147483647 members");
    Grouper grouper;
    for (std::size_t i = 0; i < names.size(); ++i)
        if (is_regular(types[i])) grouper.add(static_cast<std::int32_t>(i), names[i]);
    grouper.finish();
    return std::move(grouper.samples);
}

}  // namespace headrace
