#include "jpeg/frame.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include <jpeglib.h>

namespace headrace {

namespace {

// Minimum width of chroma that libjpeg interpolates.
constexpr int kLeastChromaWidth = 3;

std::optional<Sampling> sampling_of(const jpeg_decompress_struct& info) {
    const jpeg_component_info* c = info.comp_info;
    const auto is = [c](int i, int h, int v) { return c[i].h_samp_factor == h && c[i].v_samp_factor == v; };
    if (info.num_components == 1) {
        // A component alone in its scan has one block per MCU, whatever its factors: Pillow writes 2x2.
        if (info.jpeg_color_space == JCS_GRAYSCALE) return Sampling::grey;
        return std::nullopt;
    }
    if (info.num_components != 3 || info.jpeg_color_space != JCS_YCbCr || !is(1, 1, 1) || !is(2, 1, 1)) {
        return std::nullopt;
    }
    for (const Sampling s : {Sampling::h1v1, Sampling::h2v1, Sampling::h1v2, Sampling::h2v2}) {
        if (!is(0, across(s), down(s))) continue;
        const int chroma_width = (static_cast<int>(info.image_width) + across(s) - 1) / across(s);
        if (across(s) == 2 && chroma_width < kLeastChromaWidth) return std::nullopt;
        return s;
    }
    return std::nullopt;
}

bool one_whole_scan(const jpeg_decompress_struct& info) {
    if (info.progressive_mode || info.arith_code || info.data_precision != 8) return false;
    if (info.Ss != 0 || info.Se != 63 || info.Ah != 0 || info.Al != 0) return false;
    if (info.comps_in_scan != info.num_components) return false;
    for (int i = 0; i < info.num_components; ++i) {
        if (info.cur_comp_info[i] != info.comp_info + i) return false;
    }
    return true;
}

void copy_code(const JHUFF_TBL& table, HuffmanCode& code) {
    std::copy_n(table.bits + 1, code.counts.size(), code.counts.begin());
    std::copy_n(table.huffval, code.symbols.size(), code.symbols.begin());
}

}  // namespace

bool is_native_sampling(const jpeg_decompress_struct& info) { return sampling_of(info).has_value(); }

bool describe(const jpeg_decompress_struct& info, BaselineFrame& frame) {
    if (!one_whole_scan(info)) return false;
    const auto sampling = sampling_of(info);
    if (!sampling) return false;
    frame.sampling = *sampling;
    frame.halved = false;
    frame.width = static_cast<int>(info.image_width);
    frame.height = static_cast<int>(info.image_height);
    frame.restart_interval = static_cast<int>(info.restart_interval);
    frame.scan = {info.src->next_input_byte, info.src->bytes_in_buffer};
    for (int i = 0; i < info.num_components; ++i) {
        const jpeg_component_info& c = info.comp_info[i];
        const auto known = [](int number, int most) { return number >= 0 && number < most; };
        if (!known(c.quant_tbl_no, NUM_QUANT_TBLS) || !known(c.dc_tbl_no, NUM_HUFF_TBLS) ||
            !known(c.ac_tbl_no, NUM_HUFF_TBLS)) {
            return false;
        }
        const JQUANT_TBL* quantisers = info.quant_tbl_ptrs[c.quant_tbl_no];
        const JHUFF_TBL* dc = info.dc_huff_tbl_ptrs[c.dc_tbl_no];
        const JHUFF_TBL* ac = info.ac_huff_tbl_ptrs[c.ac_tbl_no];
        if (quantisers == nullptr || dc == nullptr || ac == nullptr) return false;
        std::copy_n(quantisers->quantval, 64, frame.quantisers[i].begin());
        copy_code(*dc, frame.dc[i]);
        copy_code(*ac, frame.ac[i]);
    }
    return true;
}

bool halve(BaselineFrame& frame) {
    if (frame.sampling != Sampling::h2v2) return false;
    frame.halved = true;
    frame.width = (frame.width + 1) / 2;
    frame.height = (frame.height + 1) / 2;
    return true;
}

}  // namespace headrace
