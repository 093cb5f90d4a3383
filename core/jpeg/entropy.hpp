// Huffman decoder of a baseline scan, MCU by MCU: stores the requested coefficients and skips the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "jpeg/bits.hpp"
#include "jpeg/frame.hpp"
#include "jpeg/huffman.hpp"
#include "jpeg/scan_bytes.hpp"

namespace headrace {

// Cache of the tables of recent codes: most files use the standard's example codes, so their tables are built once.
template <typename Table>
class TableShelf {
public:
    // Returns tables that stay valid until three other codes have been requested. Null for an invalid code; and for a
    // new code that is not `worth` its tables for a single use, until it is requested twice in a row.
    const Table* find(const HuffmanCode& code, bool worth);

private:
    struct Slot {
        HuffmanCode code;
        Table table;
        std::uint64_t used = 0;
        bool valid = false;
    };
    std::unique_ptr<std::array<Slot, 4>> slots_ = std::make_unique<std::array<Slot, 4>>();
    std::uint64_t uses_ = 0;
    HuffmanCode put_off_;
};

constexpr int kBlock = 64;
// Coefficients that decoding may write past the requested ones.
constexpr int kBlockSlack = 1;

// Any anomaly (an invalid code, positions beyond a block, data that ends too early or too late, an unexpected marker)
// returns false; libjpeg then takes over.
//
// Time is spent on the dependency chain from one lookup to the next (shift, load, shift: about eight cycles) and on
// branch mispredictions, mainly at the end of a block. Nothing else pays off: BMI2's shifts gain 1 %, other batch sizes
// of MCUs nothing; docs/design.md lists more.
class EntropyDecoder {
public:
    // Returns false for an invalid code; unless `at_any_cost`, also if building tables takes longer than they save.
    bool open(const BaselineFrame&, bool at_any_cost);
    // Skips `mcus` MCUs. Restart intervals that end within them are searched for their end and not decoded, so damage
    // inside them stays unseen; it ends at their marker for libjpeg, too.
    bool skip(std::int64_t mcus);
    // Decodes `mcus` MCUs, each a sequence of blocks: luma row by row, Cb, Cr. Coefficients are in row order, not yet
    // dequantized.
    bool decode(int mcus, std::int16_t* blocks);

    int blocks_per_mcu() const { return blocks_; }

private:
    struct Component {
        const DcTable* dc = nullptr;
        const AcTable* ac = nullptr;
        int last_dc = 0;
    };

    template <bool kStore>
    bool run(std::int64_t mcus, std::int16_t* blocks);
    template <bool kStore>
    bool run_segment(int mcus, std::int16_t* blocks);
    bool restart();
    bool pass_marker();
    void begin_segment();
    void skip_segment();

    TableShelf<DcTable> dc_tables_;
    TableShelf<AcTable> ac_tables_;
    std::array<Component, 3> components_;
    std::array<std::uint8_t, 6> component_of_{};  // by block in the MCU
    int blocks_ = 0;
    ScanBytes bytes_;
    BitReader reader_;
    int restart_interval_ = 0;
    int until_restart_ = 0;  // MCUs
    int next_restart_ = 0;   // 0 to 7
};

}  // namespace headrace
