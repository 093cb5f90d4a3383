// What the fast path needs to know of a baseline JPEG. libjpeg has read and checked the header by then, so no untrusted
// header is read twice, and the two can never read one differently.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "jpeg/huffman.hpp"

struct jpeg_decompress_struct;

namespace headrace {

// How many luma samples lie on a chroma sample.
enum class Sampling : std::uint8_t { grey, h1v1, h2v1, h1v2, h2v2 };
constexpr int kSamplings = 5;

constexpr int across(Sampling s) { return s == Sampling::h2v1 || s == Sampling::h2v2 ? 2 : 1; }
constexpr int down(Sampling s) { return s == Sampling::h1v2 || s == Sampling::h2v2 ? 2 : 1; }

using Quantisers = std::array<std::uint16_t, 64>;  // in rows of the block, not in zigzag order

struct BaselineFrame {
    int width = 0, height = 0;  // of the pixels to be made
    bool halved = false;        // made at half the size, of subsampled chroma only: see halve()
    Sampling sampling = Sampling::grey;
    int restart_interval = 0;              // in MCUs; 0: none
    std::span<const std::uint8_t> scan;    // from the first entropy-coded byte to the end of the file
    std::array<Quantisers, 3> quantisers;  // by component, as are these:
    std::array<HuffmanCode, 3> dc, ac;

    int components() const { return sampling == Sampling::grey ? 1 : 3; }
    // Samples of luma that a block's side becomes.
    int luma_side() const { return halved ? 4 : 8; }
    int mcu_width() const { return luma_side() * across(sampling); }
    int mcu_height() const { return luma_side() * down(sampling); }
    // Of the samples that are made. Chroma keeps its size while luma is halved, as libjpeg has it.
    Sampling made() const { return halved ? Sampling::h1v1 : sampling; }
};

// Fills `frame` after jpeg_read_header(). False: a file that is left to libjpeg (progressive, arithmetic, several
// scans, RGB, an unusual sampling, missing tables).
bool describe(const jpeg_decompress_struct&, BaselineFrame& frame);

// Asks for pixels at half the size, after describe(). False where chroma is not subsampled both ways: left to libjpeg.
bool halve(BaselineFrame& frame);

}  // namespace headrace
