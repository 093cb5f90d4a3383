#include "jpeg/entropy.hpp"

#include <algorithm>
#include <limits>

namespace headrace {

namespace {

// From zigzag order to rows. A position beyond the block, which only damage and guesses have, is the word behind it.
constexpr int kPositions = kBlock + kMostAdvance + 16;
constexpr auto kRowOrder = [] {
    std::array<std::uint8_t, kPositions> order{};
    order.fill(kBlock);
    int x = 0, y = 0;
    for (int i = 0; i < kBlock; ++i) {
        order[i] = static_cast<std::uint8_t>(8 * y + x);
        if ((x + y) % 2 == 0) {
            if (x == 7) ++y;
            else if (y == 0) ++x;
            else ++x, --y;
        } else {
            if (y == 7) ++x;
            else if (x == 0) ++y;
            else --x, ++y;
        }
    }
    return order;
}();

constexpr bool well_ended(int position) {
    return position == kBlock || (position > kEndOfBlock && position < kEndOfBlock + kBlock);
}

// One difference, after refill(). False: not one that 8-bit JPEG has.
bool read_dc(BitReader& reader, const DcTable& table, int& difference) {
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

// One symbol of any length. False where it is none, or leaves the block.
template <bool kStore>
bool read_ac(BitReader& reader, const AcTable& table, int& position, std::int16_t* block) {
    reader.refill();
    const auto [length, symbol] = table.search.find(static_cast<std::uint32_t>(reader.bits >> 48));
    const int run = symbol >> 4, size = symbol & 15;
    if (length == 0 || size > kMostAcBits) return false;
    const int value = extend(reader.bits << length, size);
    reader.consume(length + size);
    reader.refill();
    if (size == 0 && run < 15) {
        position += kEndOfBlock;
        return true;
    }
    position += run + 1;
    if (position > kBlock) return false;
    if (kStore && size > 0) block[kRowOrder[position - 1]] = static_cast<std::int16_t>(value);
    return true;
}

// What a look at the table gives, or else one symbol.
template <bool kStore>
inline bool step(BitReader& reader, const AcTable& table, int& position, std::int16_t* block) {
    if constexpr (kStore) {
        const AcTable::Step& s = table.steps[reader.bits >> (64 - AcTable::kLook)];
        if (s.advance == 0) [[unlikely]] return read_ac<true>(reader, table, position, block);
        block[kRowOrder[position + s.first]] = s.values[0];
        block[kRowOrder[position + s.second]] = s.values[1];
        reader.consume(s.length);
        position += s.advance;
    } else {
        const unsigned s = table.skips[reader.bits >> (64 - AcTable::kSkipLook)];
        if (s == 0) [[unlikely]] return read_ac<false>(reader, table, position, nullptr);
        reader.consume(static_cast<int>(s & 63));
        position += static_cast<int>(s >> 6);
    }
    return true;
}

// The coefficients 1 to 63. A step may run over the end of a block whose last coefficient is not zero, and take the
// next block's bits for its own; then it is done again symbol by symbol.
template <bool kStore>
inline bool read_acs(BitReader& reader, const AcTable& table, std::int16_t* block) {
    int position = 1, before_position;
    BitReader before;
    do {
        before = reader;
        before_position = position;
        reader.refill();
        // 56 bits are enough for four looks; read_ac refills for itself.
        for (int i = 0; i < 4 && position < kBlock; ++i) {
            if (!step<kStore>(reader, table, position, block)) return false;
        }
    } while (position < kBlock);
    if (well_ended(position)) [[likely]] return true;
    reader = before;
    position = before_position;
    while (position < kBlock) {
        if (!read_ac<kStore>(reader, table, position, block)) return false;
    }
    return well_ended(position);
}

}  // namespace

template <typename Table>
const Table* TableShelf<Table>::find(const HuffmanCode& code) {
    auto& slots = *slots_;
    auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) { return s.used != 0 && s.code == code; });
    if (slot == slots.end()) {
        slot = std::min_element(slots.begin(), slots.end(), [](auto& a, auto& b) { return a.used < b.used; });
        slot->code = code;
        slot->valid = slot->table.build(code);
    }
    slot->used = ++uses_;
    return slot->valid ? &slot->table : nullptr;
}

bool EntropyDecoder::open(const BaselineFrame& frame) {
    const int luma_blocks = across(frame.sampling) * down(frame.sampling);
    blocks_ = luma_blocks + frame.components() - 1;
    for (int i = 0; i < blocks_; ++i) component_of_[i] = static_cast<std::uint8_t>(std::max(0, i - luma_blocks + 1));
    for (int i = 0; i < frame.components(); ++i) {
        components_[i] = {dc_tables_.find(frame.dc[i]), ac_tables_.find(frame.ac[i]), 0};
        if (components_[i].dc == nullptr || components_[i].ac == nullptr) return false;
    }
    restart_interval_ = frame.restart_interval;
    next_restart_ = 0;
    bytes_.open(frame.scan);
    begin_segment(reader_);
    return true;
}

void EntropyDecoder::begin_segment(BitReader& reader) {
    reader = {};
    reader.next = bytes_.begin_segment();
    until_restart_ = restart_interval_ > 0 ? restart_interval_ : std::numeric_limits<int>::max();
    for (Component& component : components_) component.last_dc = 0;
}

bool EntropyDecoder::restart(BitReader& reader) {
    if (restart_interval_ == 0) {  // as many MCUs as an int counts
        until_restart_ = std::numeric_limits<int>::max();
        return true;
    }
    const bool whole = bytes_.ended() && reader.left(bytes_.end()) < 8;
    if (!whole || bytes_.marker() != 0xD0 + next_restart_) return false;
    next_restart_ = (next_restart_ + 1) % 8;
    bytes_.pass_marker();
    begin_segment(reader);
    return true;
}

template <bool kStore>
bool EntropyDecoder::run(std::int64_t mcus, std::int16_t* blocks) {
    BitReader reader = reader_;
    for (; mcus > 0; --mcus) {
        if (until_restart_ == 0 && !restart(reader)) return false;
        reader.next = bytes_.ensure(reader.next);
        for (int i = 0; i < blocks_; ++i) {
            Component& component = components_[component_of_[i]];
            int difference;
            reader.refill();
            if (!read_dc(reader, *component.dc, difference)) return false;
            component.last_dc += difference;
            if (component.last_dc != static_cast<std::int16_t>(component.last_dc)) return false;
            if (kStore) {
                std::fill_n(blocks, kBlock, std::int16_t{0});
                blocks[0] = static_cast<std::int16_t>(component.last_dc);
            }
            if (!read_acs<kStore>(reader, *component.ac, blocks)) return false;
            if (kStore) blocks += kBlock;
        }
        --until_restart_;
        if (bytes_.ended() && reader.left(bytes_.end()) < 0) return false;
    }
    reader_ = reader;
    return true;
}

bool EntropyDecoder::skip(std::int64_t mcus) { return run<false>(mcus, nullptr); }

bool EntropyDecoder::decode(int mcus, std::int16_t* blocks) { return run<true>(mcus, blocks); }

}  // namespace headrace
