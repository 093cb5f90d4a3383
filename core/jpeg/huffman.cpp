#include "jpeg/huffman.hpp"

#include <algorithm>
#include <numeric>

namespace headrace {

bool CodeSearch::build(const HuffmanCode& code) {
    if (std::accumulate(code.counts.begin(), code.counts.end(), 0) > 256) return false;
    symbols_ = code.symbols;
    std::uint32_t next = 0;
    int before = 0;
    for (int length = 1; length <= 16; ++length) {
        const int count = code.counts[length - 1];
        offsets_[length] = before - static_cast<int>(next);
        next += static_cast<std::uint32_t>(count);
        before += count;
        if (count > 0 && next >= 1u << length) return false;
        limits_[length] = next << (16 - length);
        next <<= 1;
    }
    return true;
}

CodeSearch::Found CodeSearch::find(std::uint32_t next16) const {
    for (int length = 1; length <= 16; ++length) {
        if (next16 >= limits_[length]) continue;
        return {length, symbols_[offsets_[length] + static_cast<int>(next16 >> (16 - length))]};
    }
    return {0, 0};
}

bool DcTable::build(const HuffmanCode& code) {
    if (!search.build(code)) return false;
    const int used = std::accumulate(code.counts.begin(), code.counts.end(), 0);
    const auto too_large = [](int size) { return size > 15; };  // libjpeg rejects these, used or not
    if (std::any_of(code.symbols.begin(), code.symbols.begin() + used, too_large)) return false;
    for (std::uint32_t look = 0; look < entries.size(); ++look) {
        const auto [length, size] = search.find(look << (16 - kLook));
        const bool whole = length > 0 && length <= kLook && size <= kMostDcBits;
        entries[look] = {};
        if (whole) {
            entries[look] = {static_cast<std::uint8_t>(length + size), static_cast<std::uint8_t>(length),
                             static_cast<std::uint8_t>(size)};
        }
    }
    return true;
}

namespace {

// One symbol with its extra bits.
struct Single {
    std::uint8_t code_length = 0;  // 0: the lookup does not hold the whole code
    std::uint8_t symbol = 0;
    std::uint8_t length = 0;  // with the extra bits
    std::uint8_t advance = 0;
    std::int16_t value = 0;  // at advance - 1; 0: none, or beyond the lookup
};
using Singles = std::array<Single, 1 << AcTable::kSkipLook>;

Single single_of(std::uint32_t look, CodeSearch::Found found) {
    const int run = found.symbol >> 4, size = found.symbol & 15;
    if (found.length == 0 || found.length > AcTable::kSkipLook || size > kMostAcBits) return {};
    Single single;
    single.code_length = static_cast<std::uint8_t>(found.length);
    single.symbol = static_cast<std::uint8_t>(found.symbol);
    single.length = static_cast<std::uint8_t>(found.length + size);
    // A run of 15 without a value is 16 zeros; any shorter run ends the block, like in libjpeg.
    single.advance = static_cast<std::uint8_t>(size > 0 || run == 15 ? run + 1 : kEndOfBlock);
    const auto aligned = static_cast<std::uint64_t>(look) << (64 - AcTable::kSkipLook);
    single.value = static_cast<std::int16_t>(size > 0 ? extend(aligned << found.length, size) : 0);
    return single;
}

// Lookups that begin with the same code are contiguous, so each code is searched for once.
void find_singles(const CodeSearch& search, Singles& singles) {
    for (std::uint32_t look = 0; look < singles.size();) {
        const CodeSearch::Found found = search.find(look << (16 - AcTable::kSkipLook));
        const bool whole = found.length > 0 && found.length <= AcTable::kSkipLook;
        const std::uint32_t past = look + (whole ? 1u << (AcTable::kSkipLook - found.length) : 1);
        for (; look < past; ++look) singles[look] = single_of(look, found);
    }
}

const Single& at(const Singles& singles, std::uint32_t look) { return singles[look & (singles.size() - 1)]; }

bool goes_on(int advance, const Single& next) {
    return advance < kEndOfBlock && (next.advance == kEndOfBlock || advance + next.advance <= kMostAdvance);
}

struct Put {
    int at = 0, value = 0;
};

AcTable::Step step_word(int length, int advance, Put first, Put second) {
    const auto field = [](int value, int shift) { return static_cast<std::uint64_t>(value) << shift; };
    return {field(length, 0) | field(advance, 8) | field(first.at, 16) | field(second.at, 24) |
            field(first.value & 0xFFFF, 32) | field(second.value & 0xFFFF, 48)};
}

// Returns the complete symbols at the start of `look`, with kLook known bits; at most two have a value.
AcTable::Step step_of(const Singles& singles, std::uint32_t look) {
    const Single& start = at(singles, look);
    if (start.code_length == 0 || start.code_length > AcTable::kLook) return {};
    if (start.length > AcTable::kLook) return step_word(start.code_length, 0, {start.symbol}, {});
    int values = 0, length = 0, advance = 0;
    Put puts[2];
    for (;;) {
        const Single& next = at(singles, look << length);
        if (next.code_length == 0 || length + next.length > AcTable::kLook || !goes_on(advance, next)) break;
        if (next.value != 0) {
            if (values == 2) break;
            puts[values++] = {advance + next.advance - 1, next.value};
        }
        length += next.length;
        advance += next.advance;
    }
    return step_word(length, advance, puts[0], values == 2 ? puts[1] : puts[0]);
}

// Returns the symbols at the start of `look` with complete codes.
std::uint16_t skip_of(const Singles& singles, std::uint32_t look) {
    int length = 0, advance = 0;
    while (length < AcTable::kSkipLook) {
        const Single& next = at(singles, look << length);
        if (next.code_length == 0 || length + next.code_length > AcTable::kSkipLook || !goes_on(advance, next)) break;
        length += next.length;
        advance += next.advance;
    }
    return static_cast<std::uint16_t>(length | advance << 6);
}

}  // namespace

bool AcTable::build(const HuffmanCode& code) {
    if (!search.build(code)) return false;
    Singles singles;
    find_singles(search, singles);
    for (std::uint32_t look = 0; look < steps.size(); ++look) {
        steps[look] = step_of(singles, look << (kSkipLook - kLook));
    }
    for (std::uint32_t look = 0; look < skips.size(); ++look) skips[look] = skip_of(singles, look);
    return true;
}

}  // namespace headrace
