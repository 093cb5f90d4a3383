#include "jpeg/entropy.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace headrace {

namespace {

// Zigzag order to row order. A position beyond the block, which only corrupt data and speculation produce, maps to the
// word after it.
constexpr int kPositions = kBlock + kMostAdvance + 16;
constexpr auto kRowOrder = [] {
    std::array<std::uint8_t, kPositions> order{};
    order.fill(kBlock);
    int x = 0, y = 0;
    for (int i = 0; i < kBlock; ++i) {
        order[i] = static_cast<std::uint8_t>(8 * y + x);
        if ((x + y) % 2 == 0) {
            if (x == 7)
                ++y;
            else if (y == 0)
                ++x;
            else
                ++x, --y;
        } else {
            if (y == 7)
                ++x;
            else if (x == 0)
                ++y;
            else
                --x, ++y;
        }
    }
    return order;
}();

// Scan size in bytes from which two custom AC codes pay off: their tables take 57 us to build, and decoding with them
// saves 3.6 ns per byte (benchmarks/jpeg_decode.py).
constexpr std::size_t kWorthTables = 16 << 10;

constexpr bool well_ended(int position) {
    return position == kBlock || (position > kEndOfBlock && position < kEndOfBlock + kBlock);
}

// The compiler keeps a reader in registers only if its address is never taken, so rare paths work on a copy.
template <typename Rare>
[[gnu::always_inline]] inline bool aside(BitReader& reader, int& position, Rare rare) {
    BitReader copy = reader;
    int copied_position = position;
    const bool fine = rare(copy, copied_position);
    reader = copy;
    position = copied_position;
    return fine;
}

// Reads one difference, after refill(). Returns false if it is not valid in 8-bit JPEG.
[[gnu::always_inline]] inline bool read_dc(BitReader& reader, const DcTable& table, int& difference) {
    const DcTable::Entry entry = table.entries[reader.bits >> (64 - DcTable::kLook)];
    int length = entry.code_length, size = entry.size;
    if (entry.length == 0) [[unlikely]] {
        const auto found = table.search.find(static_cast<std::uint32_t>(reader.bits >> 48));
        if (found.length == 0 || found.symbol > kMostDcBits) return false;
        length = found.length;
        size = found.symbol;
    }
    difference = extend(reader.bits << length, size);
    reader.consume(length + size);
    return true;
}

// Reads the value of a symbol with a code of `length` bits. Returns false if it leaves the block.
template <bool kStore>
inline bool read_value(BitReader& reader, int length, int symbol, int& position, std::int16_t* block) {
    const int run = symbol >> 4, size = symbol & 15;
    if (size > kMostAcBits) return false;
    const int value = extend(reader.bits << length, size);
    reader.consume(length + size);
    if (size == 0 && run < 15) {
        position += kEndOfBlock;
        return true;
    }
    position += run + 1;
    if (position > kBlock) return false;
    if (kStore && size > 0) block[kRowOrder[position - 1]] = static_cast<std::int16_t>(value);
    return true;
}

// Reads one symbol of any length. Returns false if it is invalid or leaves the block.
template <bool kStore>
[[gnu::noinline]] bool read_ac(BitReader& reader, const AcTable& table, int& position, std::int16_t* block) {
    reader.refill();
    const auto [length, symbol] = table.search.find(static_cast<std::uint32_t>(reader.bits >> 48));
    return length > 0 && read_value<kStore>(reader, length, symbol, position, block);
}

template <bool kStore>
[[gnu::noinline]] bool read_rest(BitReader& reader, const AcTable& table, int& position, std::int16_t* block) {
    while (position < kBlock) {
        if (!read_ac<kStore>(reader, table, position, block)) return false;
    }
    return well_ended(position);
}

// Performs as many table lookups as the bits of a refill always suffice for, each with one or two values, until the
// block ends; a lookup that needs more bits is the last. Returns false for an invalid symbol, or one that leaves the
// block. Unrolling, and the position as a pointer, save 2 % of a decode.
[[gnu::always_inline]] inline bool store_looks(BitReader& reader, const AcTable& table, int& position,
                                               std::int16_t* block) {
    const std::uint8_t* order = kRowOrder.data() + position;
#pragma GCC unroll 5
    for (int i = 0; i < 56 / AcTable::kLook; ++i) {
        const AcTable::Step s = table.steps[reader.bits >> (64 - AcTable::kLook)];
        if (s.advance() == 0) [[unlikely]] {
            position = static_cast<int>(order - kRowOrder.data());
            reader.refill();
            if (s.length() > 0) return read_value<true>(reader, s.length(), s.first(), position, block);
            return aside(reader, position, [&](auto& r, int& at) { return read_ac<true>(r, table, at, block); });
        }
        reader.consume(s.length());
        block[order[s.first()]] = s.first_value();
        block[order[s.second()]] = s.second_value();
        order += s.advance();
        if (order >= kRowOrder.data() + kBlock) break;
    }
    position = static_cast<int>(order - kRowOrder.data());
    return true;
}

// The same without values.
[[gnu::always_inline]] inline bool skip_looks(BitReader& reader, const AcTable& table, int& position) {
    for (int i = 0; i < 56 / AcTable::kMostSkipBits && position < kBlock; ++i) {
        const unsigned s = table.skips[reader.bits >> (64 - AcTable::kSkipLook)];
        if (s == 0) [[unlikely]] {
            return aside(reader, position, [&](auto& r, int& at) { return read_ac<false>(r, table, at, nullptr); });
        }
        reader.consume(static_cast<int>(s & 63));
        position += static_cast<int>(s >> 6);
    }
    return true;
}

// Reads coefficients 1 to 63. If the last coefficient is not zero, a lookup may run past the end of the block and
// consume the next block's bits; then it is repeated symbol by symbol.
template <bool kStore>
[[gnu::always_inline]] inline bool read_acs(BitReader& reader, const AcTable& table, std::int16_t* block) {
    int position = 1, before_position;
    BitReader before;
    do {
        before = reader;
        before_position = position;
        reader.refill();
        const bool fine = kStore ? store_looks(reader, table, position, block) : skip_looks(reader, table, position);
        if (!fine) return false;
    } while (position < kBlock);
    if (well_ended(position)) [[likely]]
        return true;
    reader = before;
    position = before_position;
    return aside(reader, position, [&](auto& r, int& at) { return read_rest<kStore>(r, table, at, block); });
}

}  // namespace

template <typename Table>
const Table* TableShelf<Table>::find(const HuffmanCode& code, bool worth) {
    auto& slots = *slots_;
    auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) { return s.used != 0 && s.code == code; });
    if (slot == slots.end()) {
        if (!worth && !(code == put_off_)) {
            put_off_ = code;
            return nullptr;
        }
        slot = std::min_element(slots.begin(), slots.end(), [](auto& a, auto& b) { return a.used < b.used; });
        slot->code = code;
        slot->valid = slot->table.build(code);
    }
    slot->used = ++uses_;
    return slot->valid ? &slot->table : nullptr;
}

bool EntropyDecoder::open(const BaselineFrame& frame, bool at_any_cost) {
    const bool worth = at_any_cost || frame.scan.size() >= kWorthTables;
    const int luma_blocks = across(frame.sampling) * down(frame.sampling);
    blocks_ = luma_blocks + frame.components() - 1;
    for (int i = 0; i < blocks_; ++i) component_of_[i] = static_cast<std::uint8_t>(std::max(0, i - luma_blocks + 1));
    for (int i = 0; i < frame.components(); ++i) {
        components_[i] = {dc_tables_.find(frame.dc[i], worth), ac_tables_.find(frame.ac[i], worth), 0};
        if (components_[i].dc == nullptr || components_[i].ac == nullptr) return false;
    }
    restart_interval_ = frame.restart_interval;
    next_restart_ = 0;
    bytes_.open(frame.scan);
    begin_segment();
    return true;
}

void EntropyDecoder::begin_segment() {
    reader_ = {};
    reader_.next = bytes_.begin_segment();
    until_restart_ = restart_interval_ > 0 ? restart_interval_ : std::numeric_limits<int>::max();
    for (Component& component : components_) component.last_dc = 0;
}

bool EntropyDecoder::restart() {
    if (restart_interval_ == 0) {  // unlimited
        until_restart_ = std::numeric_limits<int>::max();
        return true;
    }
    if (!pass_marker()) return false;
    begin_segment();
    return true;
}

// Passes the marker at the end of a segment, which must be complete, and the marker the next in sequence.
bool EntropyDecoder::pass_marker() {
    const bool whole = bytes_.ended() && reader_.left(bytes_.end()) < 8;
    if (!whole || bytes_.marker() != 0xD0 + next_restart_) return false;
    next_restart_ = (next_restart_ + 1) % 8;
    bytes_.pass_marker();
    return true;
}

void EntropyDecoder::skip_segment() {
    reader_ = {};
    reader_.next = bytes_.skip_segment();
    until_restart_ = 0;
}

template <bool kStore>
bool EntropyDecoder::run(std::int64_t mcus, std::int16_t* blocks) {
    while (mcus > 0) {
        if (until_restart_ == 0 && !restart()) return false;
        const int some = static_cast<int>(std::min<std::int64_t>(mcus, until_restart_));
        if (!run_segment<kStore>(some, blocks)) return false;
        if (kStore) blocks += some * blocks_ * kBlock;
        until_restart_ -= some;
        mcus -= some;
    }
    return true;
}

template <bool kStore>
bool EntropyDecoder::run_segment(int mcus, std::int16_t* blocks) {
    BitReader reader = reader_;
    for (; mcus > 0; --mcus) {
        reader.next = bytes_.ensure(reader.next);
        for (int i = 0; i < blocks_; ++i) {
            Component& component = components_[component_of_[i]];
            int difference;
            reader.refill();
            if (!read_dc(reader, *component.dc, difference)) return false;
            component.last_dc += difference;
            if (component.last_dc != static_cast<std::int16_t>(component.last_dc)) return false;
            if (kStore) blocks[0] = static_cast<std::int16_t>(component.last_dc);
            if (!read_acs<kStore>(reader, *component.ac, blocks)) return false;
            if (kStore) blocks += kBlock;
        }
        if (bytes_.ended() && reader.left(bytes_.end()) < 0) return false;
    }
    reader_ = reader;
    return true;
}

bool EntropyDecoder::skip(std::int64_t mcus) {
    if (restart_interval_ > 0 && mcus >= until_restart_) {
        mcus -= until_restart_;
        if (until_restart_ > 0) skip_segment();
        for (; mcus >= restart_interval_; mcus -= restart_interval_) {
            if (!pass_marker()) return false;
            skip_segment();
        }
    }
    return run<false>(mcus, nullptr);
}

bool EntropyDecoder::decode(int mcus, std::int16_t* blocks) {
    std::memset(blocks, 0, static_cast<std::size_t>(mcus) * blocks_ * kBlock * sizeof *blocks);
    return run<true>(mcus, blocks);
}

}  // namespace headrace
