#include "cache/space_map.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

namespace headrace {

namespace {

constexpr std::uint64_t kWordBits = 64;
using Words = std::vector<std::uint64_t>;

// Returns the first unit at or after `unit` with a bit of `value`, or `units`. Bits are numbered from the lowest bit of
// the first byte, which on a little-endian machine also holds for words.
std::uint64_t find_bit(const Words& words, std::uint64_t unit, std::uint64_t units, bool value) {
    while (unit < units) {
        const std::uint64_t word = words[unit / kWordBits], bits = (value ? word : ~word) >> unit % kWordBits;
        if (bits != 0) return std::min(units, unit + static_cast<std::uint64_t>(std::countr_zero(bits)));
        unit += kWordBits - unit % kWordBits;
    }
    return units;
}

// Returns the first unit of `count` contiguous free units, or `units`.
std::uint64_t find_run(const Words& words, std::uint64_t units, std::uint64_t count) {
    for (std::uint64_t end, unit = find_bit(words, 0, units, false); unit < units;
         unit = find_bit(words, end, units, false)) {
        end = find_bit(words, unit, units, true);
        if (end - unit >= count) return unit;
    }
    return units;
}

void set_run(std::span<std::uint8_t> bytes, std::uint64_t first, std::uint64_t count, bool value) {
    for (std::uint64_t unit = first; unit < first + count; ++unit) {
        const auto bit = static_cast<std::uint8_t>(1U << unit % 8);
        bytes[unit / 8] = static_cast<std::uint8_t>(value ? bytes[unit / 8] | bit : bytes[unit / 8] & ~bit);
    }
}

std::uint64_t count_run(std::span<const std::uint8_t> bytes, std::uint64_t first, std::uint64_t count) {
    std::uint64_t found = 0;
    for (std::uint64_t unit = first; unit < first + count; ++unit) found += bytes[unit / 8] >> unit % 8 & 1;
    return found;
}

}  // namespace

std::uint64_t SpaceMap::groups() const {
    if (limit_ <= first_ + kMapBytes + kUnit) return 0;
    return (limit_ - first_ - kMapBytes - kUnit) / kGroupBytes + 1;
}

std::uint64_t SpaceMap::units_of(std::uint64_t group) const {
    return std::min(kGroupUnits, (limit_ - data_at(group)) / kUnit);
}

std::uint64_t SpaceMap::room() const {
    const std::uint64_t all = groups();
    return all == 0 ? 0 : ((all - 1) * kGroupUnits + units_of(all - 1)) * kUnit;
}

std::uint64_t SpaceMap::largest() const {
    const std::uint64_t all = groups();
    return all == 0 ? 0 : units_of(0) * kUnit;  // no later group is larger than the first
}

bool SpaceMap::is_place(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset < data_at(0)) return false;
    const std::uint64_t inside = (offset - first_) % kGroupBytes;
    return inside >= kMapBytes && (inside - kMapBytes) % kUnit == 0 && inside + taken_by(bytes) <= kGroupBytes;
}

SpaceMap::Taken SpaceMap::take(std::uint64_t bytes) {
    const std::uint64_t count = taken_by(bytes) / kUnit, all = groups();
    const CacheTail tail = file_.tail().value_or(CacheTail{});
    Words words(kMapBytes / sizeof(std::uint64_t));
    for (std::uint64_t tried = 0; count <= kGroupUnits && tried < all; ++tried) {
        const std::uint64_t group = (tail.group + tried) % all, units = units_of(group);
        const bool is_there = file_.read_at(map_at(group), words.data(), kMapBytes);
        if (!is_there) std::ranges::fill(words, 0);  // beyond the end of the file
        const std::uint64_t unit = find_run(words, units, count);
        if (unit == units) continue;
        std::span<std::uint8_t> map(reinterpret_cast<std::uint8_t*>(words.data()), kMapBytes);
        set_run(map, unit, count, true);
        const std::uint64_t from = is_there ? unit / 8 : 0, to = is_there ? (unit + count + 7) / 8 : kMapBytes;
        int error = file_.write_at(map_at(group) + from, &map[from], to - from);
        if (error == 0) error = file_.set_next(tail.next + count * kUnit, static_cast<std::uint32_t>(group));
        if (error != 0) return {std::nullopt, error};
        return {data_at(group) + unit * kUnit, 0};
    }
    return {std::nullopt, 0};
}

int SpaceMap::give_back(std::uint64_t offset, std::uint64_t bytes) {
    if (!is_place(offset, bytes) || bytes == 0) return 0;
    const std::uint64_t group = (offset - first_) / kGroupBytes, unit = (offset - data_at(group)) / kUnit;
    const std::uint64_t count = taken_by(bytes) / kUnit, from = unit / 8, to = (unit + count + 7) / 8;
    std::vector<std::uint8_t> map(to - from);
    if (!file_.read_at(map_at(group) + from, map.data(), map.size())) return 0;
    const CacheTail tail = file_.tail().value_or(CacheTail{});
    const std::uint64_t given = count_run(map, unit % 8, count) * kUnit;
    set_run(map, unit % 8, count, false);
    const int error = file_.write_at(map_at(group) + from, map.data(), map.size());
    return error != 0 ? error : file_.set_next(tail.next - std::min(tail.next, given), tail.group);
}

int SpaceMap::rebuild() {
    std::vector<std::vector<std::uint8_t>> maps(groups());
    for (auto& map : maps) map.resize(kMapBytes);
    std::uint64_t taken = 0;
    int error = 0;
    file_.each_entry(0, entries_, [&](std::uint64_t index, const CacheEntry& entry) {
        if (entry.state != CacheState::kept || entry.bytes == 0 || error != 0) return;
        const std::uint64_t count = taken_by(entry.bytes) / kUnit;
        if (!is_place(entry.offset, entry.bytes) || entry.offset > limit_ || entry.offset + count * kUnit > limit_) {
            error = file_.set_entry(index, CacheEntry{});
            return;
        }
        const std::uint64_t group = (entry.offset - first_) / kGroupBytes;
        const std::uint64_t unit = (entry.offset - data_at(group)) / kUnit;
        taken += (count - count_run(maps[group], unit, count)) * kUnit;
        set_run(maps[group], unit, count, true);
    });
    for (std::uint64_t group = 0; group < maps.size() && error == 0; ++group) {
        if (map_at(group) < file_.size()) error = file_.write_at(map_at(group), maps[group].data(), kMapBytes);
    }
    if (error == 0 && file_.size() > std::max(limit_, first_)) error = file_.cut(std::max(limit_, first_));
    return error != 0 ? error : file_.set_next(taken);
}

}  // namespace headrace
