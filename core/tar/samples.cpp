#include "tar/samples.hpp"

#include <algorithm>
#include <unordered_map>

#include "common/fault.hpp"

namespace headrace {
namespace {

// webdataset skips names that match ^__[^/]*__($|/).
bool is_metadata(std::string_view name) {
    const std::string_view first = name.substr(0, name.find('/'));
    return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    return out;
}

std::string_view without_dot_slash(std::string_view name) {
    while (name.starts_with("./")) name.remove_prefix(2);
    return name;
}

bool is_regular(std::uint8_t type) { return type == '0' || type == '7'; }

std::string_view base_name(std::string_view name) { return name.substr(name.rfind('/') + 1); }

class Grouper {
public:
    TarSamples samples;

    void add_other() { belongs_to_none(); }

    void add_regular(std::string_view name) {
        const std::string_view base = base_name(name);
        const std::size_t dot = base.find('.');
        if (is_metadata(name)) return pass(samples.metadata);
        if (dot == 0) return pass(samples.hidden);
        if (dot == std::string_view::npos || dot + 1 == base.size()) return pass(samples.without_extension);
        samples.sample_of.push_back(sample(name.substr(0, name.size() - base.size() + dot)));
        samples.extension_of.push_back(extension(lower(base.substr(dot + 1))));
    }

private:
    void pass(std::int64_t& count) {
        ++count;
        belongs_to_none();
    }

    void belongs_to_none() {
        samples.sample_of.push_back(-1);
        samples.extension_of.push_back(-1);
    }

    std::int64_t sample(std::string_view key) {
        const auto [at, is_new] = samples_.try_emplace(key, static_cast<std::int64_t>(samples_.size()));
        if (is_new) {
            samples.keys += key;
            samples.key_offsets.push_back(samples.keys.size());
            samples.folder_of.push_back(folder(key));
        }
        return at->second;
    }

    std::int32_t folder(std::string_view key) {
        const std::size_t slash = key.find('/');
        if (slash == std::string_view::npos) return -1;
        const std::string_view name = key.substr(0, slash);
        const auto [at, is_new] = folders_.try_emplace(name, static_cast<std::int32_t>(folders_.size()));
        if (is_new) {
            samples.folders += name;
            samples.folder_offsets.push_back(samples.folders.size());
        }
        return at->second;
    }

    std::int32_t extension(std::string text) {
        const auto [at, is_new] = extensions_.try_emplace(text, static_cast<std::int32_t>(extensions_.size()));
        if (is_new) {
            if (extensions_.size() > max_tar_extensions)
                throw Fault(Code::limit, "more than max_tar_extensions = " + std::to_string(max_tar_extensions) +
                                             " different extensions, such as '" + samples.extensions.back() +
                                             "' and '" + text + "'");
            samples.extensions.push_back(std::move(text));
        }
        return at->second;
    }

    // Keyed by views into the caller's names, which outlive the grouping.
    std::unordered_map<std::string_view, std::int64_t> samples_;
    std::unordered_map<std::string_view, std::int32_t> folders_;
    std::unordered_map<std::string, std::int32_t> extensions_;
};

}  // namespace

TarSamples group_members(std::string_view names, std::span<const std::uint64_t> name_offsets,
                         std::span<const std::uint8_t> types) {
    Grouper grouper;
    for (std::size_t i = 0; i < types.size(); ++i) {
        const std::string_view name = names.substr(name_offsets[i], name_offsets[i + 1] - name_offsets[i]);
        is_regular(types[i]) ? grouper.add_regular(without_dot_slash(name)) : grouper.add_other();
    }
    return std::move(grouper.samples);
}

}  // namespace headrace
