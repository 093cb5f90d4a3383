#include "png/row_decoder.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>

#include "common/fault.hpp"

namespace headrace::png {
namespace {

std::string described(const PngInfo& info) {
    const char* const kind = info.color_type == 0   ? "grey"
                             : info.color_type == 2 ? "RGB"
                             : info.color_type == 3 ? "palette"
                             : info.color_type == 4 ? "grey + alpha"
                                                    : "RGBA";
    return std::to_string(info.bit_depth) + "-bit " + kind;
}

Pixels rgbx_pixels(const PngInfo& info) {
    const bool wide = info.bit_depth == 16;
    switch (info.color_type) {
        case 2:
            return wide ? Pixels::rgb16 : Pixels::rgb8;
        case 4:
            return wide ? Pixels::grey_alpha16 : Pixels::grey16;
        case 6:
            return wide ? Pixels::rgba16 : Pixels::rgba8;
        default:
            return wide ? Pixels::grey16 : Pixels::grey8;
    }
}

void check_layout(const PngInfo& info, Layout layout) {
    if (layout == Layout::rgbx8 || layout == Layout::samples) return;
    const bool single = info.color_type == 0 || info.color_type == 3;
    const bool wide = info.bit_depth == 16;
    if (single && wide == (layout == Layout::raw16)) return;
    const std::string expected =
        layout == Layout::raw16 ? "16-bit grey" : "one sample of at most 8 bits a pixel (grey or palette)";
    const std::string remedy = !single ? "an image" : wide ? "16-bit depth" : "a mask";
    throw Fault(Code::unsupported, "PNG: expected " + expected + ", got " + described(info) + ": read it as " + remedy);
}

std::uint32_t rgbx_word(std::uint8_t r, std::uint8_t g, std::uint8_t b) {
    return std::bit_cast<std::uint32_t>(std::array<std::uint8_t, 4>{r, g, b, 0});
}

int layout_bytes(Layout layout) { return layout == Layout::rgbx8 ? 4 : layout == Layout::raw16 ? 2 : 1; }

}  // namespace

void RowDecoder::set(const Chunks& chunks, Layout layout) {
    const PngInfo& info = chunks.info;
    check_layout(info, layout);
    samples_ = layout == Layout::samples;
    if (samples_) return set_samples(chunks);
    bits_ = info.bit_depth;
    pixel_bytes_ = layout_bytes(layout);
    const bool looked_up = info.color_type == 3 && layout == Layout::rgbx8;
    expands_ = bits_ < 8 || looked_up;
    if (expands_) set_lookup(chunks, layout);
    pixels_ = Pixels::bytes;
    if (!expands_ && layout == Layout::rgbx8) pixels_ = rgbx_pixels(info);
    if (!expands_ && layout == Layout::raw16) pixels_ = Pixels::native16;
    filters_ = &row_filters(pixels_, level_);
}

void RowDecoder::set_samples(const Chunks& chunks) {
    const PngInfo& info = chunks.info;
    const int channels = info.color_type == 2 ? 3 : info.color_type == 4 ? 2 : info.color_type == 6 ? 4 : 1;
    const bool palette = info.color_type == 3;
    bits_ = info.bit_depth;
    expands_ = true;
    pixels_ = Pixels::bytes;
    pixel_bits_ = channels * bits_;
    step_ = std::max(1, pixel_bits_ / 8);
    pixel_bytes_ = palette ? 3 : channels * (bits_ == 16 ? 2 : 1);
    colors_ = 0;
    if (bits_ < 8 || palette) set_lookup(chunks, palette ? Layout::rgbx8 : Layout::raw8);
}

// Applies the filters as defined by the standard. `out` may be the row above itself.
void RowDecoder::unfilter_samples(const std::uint8_t* raw, std::uint8_t* out) {
    const int filter = raw[0];
    std::array<std::uint8_t, 8> left{}, corner{};
    for (std::size_t i = 0, lane = 0; i < units_;
         ++i, lane = lane + 1 == static_cast<std::size_t>(step_) ? 0 : lane + 1) {
        const int a = left[lane], b = above_[i], c = corner[lane];
        int predicted = 0;
        if (filter == 1) predicted = a;
        if (filter == 2) predicted = b;
        if (filter == 3) predicted = (a + b) / 2;
        if (filter == 4) {
            const int pa = std::abs(b - c), pb = std::abs(a - c), pc = std::abs(a + b - 2 * c);
            predicted = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
        }
        corner[lane] = static_cast<std::uint8_t>(b);
        out[i] = left[lane] = static_cast<std::uint8_t>(raw[1 + i] + predicted);
    }
}

void RowDecoder::set_lookup(const Chunks& chunks, Layout layout) {
    const bool palette = chunks.info.color_type == 3;
    const bool looked_up = palette && layout == Layout::rgbx8;
    colors_ = looked_up ? static_cast<int>(chunks.palette.size() / 3) : 0;
    for (int i = 0; i < colors_; ++i) {
        const std::uint8_t* p = chunks.palette.data() + 3 * i;
        table_[i] = rgbx_word(p[0], p[1], p[2]);
    }
    if (looked_up) return;
    const int scale = palette ? 1 : 255 / ((1 << bits_) - 1);
    for (int i = 0; i < 1 << bits_; ++i) {
        const auto value = static_cast<std::uint8_t>(i * scale);
        table_[i] = layout == Layout::rgbx8 ? rgbx_word(value, value, value) : value;
    }
}

void RowDecoder::begin(int width) {
    width_ = width;
    row_ = 0;
    units_ = samples_   ? (static_cast<std::size_t>(width) * pixel_bits_ + 7) / 8
             : expands_ ? (static_cast<std::size_t>(width) * bits_ + 7) / 8
                        : static_cast<std::size_t>(width);
    own_stride_ = units_ * gather_of(pixels_).lanes + slack_bytes;
    std::uint8_t* const memory = own_memory_.reserve((1 + own_rows) * own_stride_);
    std::memset(memory, 0, own_stride_);
    above_ = memory;
    own_ = memory + own_stride_;
}

void RowDecoder::take(const std::uint8_t* raw, std::size_t raw_stride, int count, std::uint8_t* out,
                      std::size_t out_stride) {
    if (!expands_) return unfilter(raw, raw_stride, count, out, out_stride);
    for (int i = 0; i < count; i += own_rows, raw += own_rows * raw_stride) {
        const int some = std::min(own_rows, count - i);
        const int first_row = row_;
        const std::uint8_t* const packed = unfilter_own(raw, raw_stride, some);
        for (int j = 0; j < some; ++j, out += out_stride) expand(packed + j * own_stride_, out, first_row + j);
    }
}

void RowDecoder::skip(const std::uint8_t* raw, std::size_t raw_stride, int count) {
    for (int i = 0; i < count; i += own_rows, raw += own_rows * raw_stride) {
        unfilter_own(raw, raw_stride, std::min(own_rows, count - i));
    }
}

const std::uint8_t* RowDecoder::unfilter_own(const std::uint8_t* raw, std::size_t raw_stride, int count) {
    unfilter(raw, raw_stride, count, own_, own_stride_);
    return own_;
}

void RowDecoder::unfilter(const std::uint8_t* raw, std::size_t raw_stride, int count, std::uint8_t* out,
                          std::size_t out_stride) {
    const int end = row_ + count;
    while (row_ < end) {
        const int filter = filter_of(raw, row_);
        if (samples_) {
            unfilter_samples(raw, out);
            above_ = out;
            ++row_;
            raw += raw_stride;
            out += out_stride;
            continue;
        }
        const PairFilter pair = filters_->pair[filter];
        const bool paired = pair != nullptr && row_ + 1 < end && raw[raw_stride] == filter;
        if (paired) {
            pair({raw + 1, out}, {raw + raw_stride + 1, out + out_stride}, above_, units_);
        } else {
            filters_->row[filter](raw + 1, above_, out, units_);
        }
        const int rows = paired ? 2 : 1;
        above_ = out + (rows - 1) * out_stride;
        row_ += rows;
        raw += rows * raw_stride;
        out += rows * out_stride;
    }
}

int RowDecoder::filter_of(const std::uint8_t* raw, int row) const {
    if (raw[0] < std::tuple_size_v<decltype(RowFilters::row)>) return raw[0];
    throw Fault(Code::corrupt, "PNG: expected a filter of 0 to 4 in row " + std::to_string(row) + ", got " +
                                   std::to_string(raw[0]) + ": the file is damaged");
}

// Expands packed samples to one byte each; may write up to seven bytes past the row.
const std::uint8_t* RowDecoder::indices(const std::uint8_t* packed) {
    if (bits_ == 8) return packed;
    std::uint8_t* const begin = index_memory_.reserve(units_ * 8 / bits_);
    const int mask = (1 << bits_) - 1;
    std::uint8_t* to = begin;
    for (std::size_t i = 0; i < units_; ++i) {
        for (int shift = 8 - bits_; shift >= 0; shift -= bits_) *to++ = packed[i] >> shift & mask;
    }
    return begin;
}

void RowDecoder::check_indices(const std::uint8_t* indices, int row) const {
    const int largest = *std::max_element(indices, indices + width_);
    if (largest < colors_) return;
    throw Fault(Code::corrupt, "PNG: expected palette indices below " + std::to_string(colors_) + ", got " +
                                   std::to_string(largest) + " in row " + std::to_string(row) +
                                   ": the file is damaged");
}

void RowDecoder::expand_samples(const std::uint8_t* packed, std::uint8_t* out) {
    if (bits_ == 8) {
        std::memcpy(out, packed, units_);
        return;
    }
    for (std::size_t i = 0; i < units_; i += 2) {
        const auto value = static_cast<std::uint16_t>(packed[i] << 8 | packed[i + 1]);
        std::memcpy(out + i, &value, 2);
    }
}

void RowDecoder::expand(const std::uint8_t* packed, std::uint8_t* out, int row) {
    if (samples_ && bits_ >= 8 && colors_ == 0) return expand_samples(packed, out);
    const std::uint8_t* const from = indices(packed);
    if (colors_ != 0) check_indices(from, row);
    if (samples_ && colors_ != 0) {
        for (int i = 0; i < width_; ++i) std::memcpy(out + 3 * std::size_t(i), &table_[from[i]], 3);
    } else if (pixel_bytes_ == 1) {
        for (int i = 0; i < width_; ++i) out[i] = static_cast<std::uint8_t>(table_[from[i]]);
    } else {
        for (int i = 0; i < width_; ++i) std::memcpy(out + 4 * std::size_t(i), &table_[from[i]], 4);
    }
}

}  // namespace headrace::png
