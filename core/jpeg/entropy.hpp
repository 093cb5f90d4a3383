// Huffman decoding of a baseline scan, MCU by MCU: into coefficients where they are wanted, past them elsewhere.
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

// The tables of the codes seen last: most files use the standard's example code, whose tables are built once.
template <typename Table>
class TableShelf {
public:
    // Stays valid until three other codes have been asked for. Null where the code is not one; and where it is new and
    // a single use is not `worth` its tables, until it is asked for twice running.
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
// Decoding may write this many coefficients beyond those it was asked for.
constexpr int kBlockSlack = 1;

// Whatever is not as it should be (no such code, positions beyond a block, data that end too soon or too late, a
// marker that was not expected) is answered with false; libjpeg then has the say.
//
// Time goes into the chain from one look to the next: shift, load, shift, about eight cycles; and into wrong guesses of
// the processor, at the end of a block above all. What shortens neither does not pay: BMI2's shifts bring 1 %, other
// batches of MCUs nothing; docs/design.md has more of these.
class EntropyDecoder {
public:
    // False where a code is not one; unless `at_any_cost`, also where building tables takes longer than they save.
    bool open(const BaselineFrame&, bool at_any_cost);
    // Passes over `mcus` MCUs.
    bool skip(std::int64_t mcus);
    // Decodes `mcus` MCUs, each a row of blocks: luma in rows, Cb, Cr. Coefficients are in rows, not yet multiplied.
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
    void begin_segment();

    TableShelf<DcTable> dc_tables_;
    TableShelf<AcTable> ac_tables_;
    std::array<Component, 3> components_;
    std::array<std::uint8_t, 6> component_of_{};  // by block of the MCU
    int blocks_ = 0;
    ScanBytes bytes_;
    BitReader reader_;
    int restart_interval_ = 0;
    int until_restart_ = 0;  // MCUs
    int next_restart_ = 0;   // 0 to 7
};

}  // namespace headrace
