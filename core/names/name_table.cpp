#include "names/name_table.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "common/fault.hpp"

namespace headrace {
namespace {

// FNV-1a (Fowler, Noll, Vo) with MurmurHash3's finalizer (Appleby), since the low bits select the bucket.
std::uint64_t hash_of(std::string_view name) {
    std::uint64_t hash = 14695981039346656037u;
    for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 1099511628211u;
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 33;
}

}  // namespace

NameTable build_name_table(std::size_t count, const std::function<std::string_view(std::int64_t)>& name_of) {
    if (count > max_names) throw Fault(Code::limit, std::to_string(count) + " names, more than max_names = 2147483647");
    const std::size_t buckets = std::bit_ceil(std::max<std::size_t>(1, count));
    std::vector<std::uint32_t> bucket_of(count);
    NameTable table{std::vector<std::uint32_t>(buckets + 1), std::vector<std::int32_t>(count)};
    for (std::size_t i = 0; i < count; ++i) {
        bucket_of[i] = static_cast<std::uint32_t>(hash_of(name_of(static_cast<std::int64_t>(i))) & (buckets - 1));
        ++table.starts[bucket_of[i]];
    }
    // Ends of buckets, which become their starts as buckets are filled backwards.
    std::partial_sum(table.starts.begin(), table.starts.end(), table.starts.begin());
    for (std::size_t i = count; i-- > 0;) table.order[--table.starts[bucket_of[i]]] = static_cast<std::int32_t>(i);
    for (std::size_t b = 0; b < buckets; ++b)
        std::sort(table.order.begin() + table.starts[b], table.order.begin() + table.starts[b + 1],
                  [&](std::int32_t x, std::int32_t y) { return std::pair(name_of(x), x) < std::pair(name_of(y), y); });
    return table;
}

std::int64_t NameLookup::find(std::string_view name, std::int64_t before) const {
    const std::size_t buckets = starts.empty() ? 0 : starts.size() - 1;
    if (!std::has_single_bit(buckets)) throw Fault(Code::corrupt, "the number of buckets is no power of two");
    const std::size_t bucket = hash_of(name) & (buckets - 1);
    const std::uint32_t start = starts[bucket], stop = starts[bucket + 1];
    if (start > stop || stop > order.size()) throw Fault(Code::corrupt, "a bucket lies outside the table");
    const std::span<const std::int32_t> ids = order.subspan(start, stop - start);
    const auto after = std::partition_point(
        ids.begin(), ids.end(), [&](std::int64_t id) { return std::pair(names.at(id), id) < std::pair(name, before); });
    return after != ids.begin() && names.at(*(after - 1)) == name ? *(after - 1) : -1;
}

std::int64_t NameLookup::find_path(std::string_view path) const {
    constexpr std::int64_t end = std::numeric_limits<std::int64_t>::max();
    std::string_view bare = path;
    while (bare.starts_with("./")) bare.remove_prefix(2);
    if (const std::int64_t id = find(path, end); id >= 0) return id;
    if (const std::int64_t id = find(bare, end); id >= 0) return id;
    return find("./" + std::string(bare), end);
}

std::string_view Names::at(std::int64_t id) const {
    if (id < 0 || static_cast<std::uint64_t>(id) + 1 >= offsets.size())
        throw Fault(Code::corrupt, "the table names what is not there");
    const std::uint64_t start = offsets[id], stop = offsets[id + 1];
    if (start > stop || stop > text.size()) throw Fault(Code::corrupt, "a name lies outside the names");
    return text.substr(start, stop - start);
}

}  // namespace headrace
