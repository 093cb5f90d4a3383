// Huffman tables for decoding whole steps at once: a look at the next bits gives the symbols that begin there together
// with their extra bits. ITU-T T.81, annexes C and F.2.2.
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

// As in a DHT segment.
struct HuffmanCode {
    std::array<std::uint8_t, 16> counts{};  // of codes of 1 to 16 bits
    std::array<std::uint8_t, 256> symbols{};

    bool operator==(const HuffmanCode&) const = default;
};

// Finds one symbol of any length; what the tables below fall back on.
class CodeSearch {
public:
    struct Found {
        int length;  // 0: no code begins like this
        int symbol;
    };
    // False: more codes than their lengths have room for, or one of all ones.
    bool build(const HuffmanCode&);
    Found find(std::uint32_t next16) const;

private:
    std::array<std::uint32_t, 17> limits_{};  // by length: past the last such code, aligned to 16 bits
    std::array<int, 17> offsets_{};           // by length: from a code to its place among the symbols
    std::array<std::uint8_t, 256> symbols_{};
};

// Largest sizes of differences and coefficients in 8-bit JPEG. Files with larger ones are left to libjpeg.
constexpr int kMostDcBits = 11;
constexpr int kMostAcBits = 10;

struct DcTable {
    static constexpr int kLook = 9;
    struct Entry {
        std::uint8_t length = 0;       // of code and extra bits; 0: see `search`
        std::uint8_t code_length = 0;  // of these the code
        std::uint8_t size = 0;         // extra bits
    };
    std::array<Entry, 1 << kLook> entries;
    CodeSearch search;

    bool build(const HuffmanCode&);
};

// Positions in a block count from 1 to 63; one past its end says that the block ends at an end-of-block code.
constexpr int kEndOfBlock = 128;
// No step without an end of block goes further than this, so that its position stays below kEndOfBlock.
constexpr int kMostAdvance = 64;

// Longer looks for values pay no more (13 bits: an eighth fewer of them, as much time, for the tables leave the L1
// cache), nor do longer ones for skips; benchmarks/jpeg_decode.py.
struct AcTable {
    static constexpr int kLook = 10;
    static constexpr int kSkipLook = 12;
    // No skip is longer: the extra bits of its last symbol may lie beyond the look.
    static constexpr int kMostSkipBits = kSkipLook + kMostAcBits;
    // One or two coefficients, and what zeros and end of block surround them. One word, so that a look is one load.
    struct Step {
        std::uint64_t word = 0;

        // In bits, below 64.
        int length() const { return static_cast<int>(word & 63); }
        // Of the position. 0: no whole symbol in kLook bits. Then `length` is that of the next code, and `first` its
        // symbol; or `length` is 0 as well, see `search`.
        int advance() const { return static_cast<std::uint8_t>(word >> 8); }
        // Where the values go, from the position; one value is written twice.
        int first() const { return static_cast<std::uint8_t>(word >> 16); }
        int second() const { return static_cast<std::uint8_t>(word >> 24); }
        std::int16_t first_value() const { return static_cast<std::int16_t>(word >> 32); }
        std::int16_t second_value() const { return static_cast<std::int16_t>(word >> 48); }
    };
    std::array<Step, 1 << kLook> steps;
    // As many symbols as fit: their length in the low 6 bits, above it their advance. 0: see `search`.
    std::array<std::uint16_t, 1 << kSkipLook> skips;
    CodeSearch search;

    bool build(const HuffmanCode&);
};

// The value that `size` extra bits stand for; `bits` begins with them. Signs are as random as data can be, so no
// branch.
inline int extend(std::uint64_t bits, int size) {
    const auto value = static_cast<int>(bits >> 1 >> (63 - size));
    const auto negative = static_cast<int>(~(static_cast<std::int64_t>(bits) >> 63));  // all ones if it begins with 0
    return value + (negative & (1 - (1 << size)));
}

}  // namespace headrace
