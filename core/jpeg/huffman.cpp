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
    std::uint8_t length = 0;  // 0: it does not fit
    std::uint8_t advance = 0;
    bool coded = false;  // has a value, at advance - 1
    std::int16_t value = 0;
};
using Singles = std::array<Single, 1 << AcTable::kSkipLook>;

Single single_of(std::uint32_t look, CodeSearch::Found found) {
    const int run = found.symbol >> 4, size = found.symbol & 15;
    if (found.length == 0 || size > kMostAcBits || found.length + size > AcTable::kSkipLook) return {};
    Single single;
    single.length = static_cast<std::uint8_t>(found.length + size);
    single.coded = size > 0;
    // A run of 15 without a value is 16 zeros; any shorter one ends the block, as libjpeg has it.
    single.advance = static_cast<std::uint8_t>(size > 0 || run == 15 ? run + 1 : kEndOfBlock);
    const auto aligned = static_cast<std::uint64_t>(look) << (64 - AcTable::kSkipLook);
    single.value = static_cast<std::int16_t>(size > 0 ? extend(aligned << found.length, size) : 0);
    return single;
}

Singles singles_of(const CodeSearch& search) {
    Singles singles;
    for (std::uint32_t look = 0; look < singles.size(); ++look) {
        singles[look] = single_of(look, search.find(look << (16 - AcTable::kSkipLook)));
    }
    return singles;
}

// The symbols at the start of `look`, its last `missing` bits unknown: at most `most_values` with a value.
AcTable::Step step_of(const Singles& singles, std::uint32_t look, int missing, int most_values) {
    AcTable::Step step{};
    int values = 0, left = AcTable::kSkipLook - missing;
    while (step.advance < kEndOfBlock) {
        const Single& next = singles[look & (singles.size() - 1)];
        if (next.length == 0 || next.length > left) break;
        if (next.advance != kEndOfBlock && step.advance + next.advance > kMostAdvance) break;
        if (next.coded) {
            if (values == most_values) break;
            const auto at = static_cast<std::uint8_t>(step.advance + next.advance - 1);
            if (values == 0) step.first = at, step.values[0] = next.value;
            step.second = at, step.values[1] = next.value;
            ++values;
        }
        step.length = static_cast<std::uint8_t>(step.length + next.length);
        step.advance = static_cast<std::uint8_t>(step.advance + next.advance);
        look <<= next.length;
        left -= next.length;
    }
    return step;
}

}  // namespace

bool AcTable::build(const HuffmanCode& code) {
    if (!search.build(code)) return false;
    const Singles singles = singles_of(search);
    constexpr int kMissing = kSkipLook - kLook;
    for (std::uint32_t look = 0; look < steps.size(); ++look) {
        steps[look] = step_of(singles, look << kMissing, kMissing, 2);
    }
    for (std::uint32_t look = 0; look < skips.size(); ++look) {
        const Step step = step_of(singles, look, 0, kSkipLook);
        skips[look] = static_cast<std::uint16_t>(step.length | step.advance << 6);
    }
    return true;
}

}  // namespace headrace
