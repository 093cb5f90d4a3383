// Huffman tables that decode several symbols at once: a lookup of the next bits returns the symbols together with their
// extra bits. ITU-T T.81, annexes C and F.2.2.
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

// Huffman code of a DHT segment.
struct HuffmanCode {
    std::array<std::uint8_t, 16> counts{};  // of codes of 1 to 16 bits
    std::array<std::uint8_t, 256> symbols{};

    bool operator==(const HuffmanCode&) const = default;
};

// Search for one symbol of any length; fallback of the tables below.
class CodeSearch {
public:
    struct Found {
        int length;  // 0: no code begins with these bits
        int symbol;
    };
    // Returns false if the code is oversubscribed or has a code of all ones.
    bool build(const HuffmanCode&);
    Found find(std::uint32_t next16) const;

private:
    std::array<std::uint32_t, 17> limits_{};  // by length: one past the last code, aligned to 16 bits
    std::array<int, 17> offsets_{};           // by length: from a code to its index in the symbols
    std::array<std::uint8_t, 256> symbols_{};
};

// Largest sizes of differences and coefficients in 8-bit JPEG. Files with larger ones are left to libjpeg.
constexpr int kMostDcBits = 11;
constexpr int kMostAcBits = 10;

struct DcTable {
    static constexpr int kLook = 9;
    struct Entry {
        std::uint8_t length = 0;       // of code and extra bits; 0: use `search`
        std::uint8_t code_length = 0;  // of the code alone
        std::uint8_t size = 0;         // of the extra bits
    };
    std::array<Entry, 1 << kLook> entries;
    CodeSearch search;

    bool build(const HuffmanCode&);
};

// Positions in a block are 1 to 63; positions from here on mark a block that ended with an end-of-block code.
constexpr int kEndOfBlock = 128;
// Maximum advance of a step without an end of block, so that its position stays below kEndOfBlock.
constexpr int kMostAdvance = 64;

// Longer lookups for values gain nothing (13 bits: an eighth fewer lookups in the same time, since the tables exceed
// the L1 cache), nor do longer lookups for skips; benchmarks/jpeg_decode.py.
struct AcTable {
    static constexpr int kLook = 10;
    static constexpr int kSkipLook = 12;
    // Maximum bits of a skip: the extra bits of its last symbol may be beyond the lookup.
    static constexpr int kMostSkipBits = kSkipLook + kMostAcBits;
    // One or two coefficients with the zeros and the end of block around them. One word, so that a lookup is one load.
    struct Step {
        std::uint64_t word = 0;

        // Length in bits, below 64.
        int length() const { return static_cast<int>(word & 63); }
        // Advance of the position. 0: no complete symbol in kLook bits. Then `length` is the next code's, and `first`
        // its symbol; or `length` is 0 as well: use `search`.
        int advance() const { return static_cast<std::uint8_t>(word >> 8); }
        // Offsets of the values from the position; a single value is written twice.
        int first() const { return static_cast<std::uint8_t>(word >> 16); }
        int second() const { return static_cast<std::uint8_t>(word >> 24); }
        std::int16_t first_value() const { return static_cast<std::int16_t>(word >> 32); }
        std::int16_t second_value() const { return static_cast<std::int16_t>(word >> 48); }
    };
    std::array<Step, 1 << kLook> steps;
    // As many symbols as fit: their length in the low 6 bits, their advance above. 0: use `search`.
    std::array<std::uint16_t, 1 << kSkipLook> skips;
    CodeSearch search;

    bool build(const HuffmanCode&);
};

// Returns the value of the `size` extra bits at the start of `bits`. Branchless, since signs are unpredictable.
inline int extend(std::uint64_t bits, int size) {
    const auto value = static_cast<int>(bits >> 1 >> (63 - size));
    const auto negative = static_cast<int>(~(static_cast<std::int64_t>(bits) >> 63));  // all ones if it begins with 0
    return value + (negative & (1 - (1 << size)));
}

}  // namespace headrace
