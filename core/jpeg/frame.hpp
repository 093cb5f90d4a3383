// Parameters of a baseline JPEG for the fast path. libjpeg has already parsed and checked the header, so no untrusted
// header is parsed twice, and the two decoders cannot disagree about it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "jpeg/huffman.hpp"

struct jpeg_decompress_struct;

namespace headrace {

// Luma samples per chroma sample.
enum class Sampling : std::uint8_t { grey, h1v1, h2v1, h1v2, h2v2 };
constexpr int kSamplings = 5;

constexpr int across(Sampling s) { return s == Sampling::h2v1 || s == Sampling::h2v2 ? 2 : 1; }
constexpr int down(Sampling s) { return s == Sampling::h1v2 || s == Sampling::h2v2 ? 2 : 1; }

using Quantisers = std::array<std::uint16_t, 64>;  // in row order, not zigzag

struct BaselineFrame {
    int width = 0, height = 0;  // of the output
    bool halved = false;        // output at half size, with subsampled chroma only: see halve()
    Sampling sampling = Sampling::grey;
    int restart_interval = 0;              // in MCUs; 0: none
    std::span<const std::uint8_t> scan;    // from the first entropy-coded byte to the end of the file
    std::array<Quantisers, 3> quantisers;  // by component, like the following:
    std::array<HuffmanCode, 3> dc, ac;

    int components() const { return sampling == Sampling::grey ? 1 : 3; }
    // Luma samples per block side in the output.
    int luma_side() const { return halved ? 4 : 8; }
    int mcu_width() const { return luma_side() * across(sampling); }
    int mcu_height() const { return luma_side() * down(sampling); }
    // Sampling of the output. If luma is halved, chroma stays at full size, like in libjpeg.
    Sampling made() const { return halved ? Sampling::h1v1 : sampling; }
};

// True if the native decoder handles the file's components and their sampling.
bool is_native_sampling(const jpeg_decompress_struct&);

// Fills `frame` after jpeg_read_header(). Returns false for files left to libjpeg (progressive, arithmetic, several
// scans, RGB, an unusual sampling, missing tables).
bool describe(const jpeg_decompress_struct&, BaselineFrame& frame);

// Requests output at half size, after describe(). Returns false if chroma is not subsampled both ways: left to libjpeg.
bool halve(BaselineFrame& frame);

}  // namespace headrace
