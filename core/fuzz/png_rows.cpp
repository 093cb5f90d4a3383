// PNG rows: any filters and samples in an otherwise valid file, for every colour type, depth and interlacing.
// Mutations change the uncompressed rows directly.
#include <libdeflate.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "fuzz/png_checks.hpp"
#include "png/adam7.hpp"
#include "png/chunks.hpp"

namespace headrace::fuzz {
namespace {

using File = std::vector<std::uint8_t>;

struct Kind {
    std::uint8_t color_type, bit_depth;
};
constexpr std::array<Kind, 15> kKinds = {{{0, 1},
                                          {0, 2},
                                          {0, 4},
                                          {0, 8},
                                          {0, 16},
                                          {2, 8},
                                          {2, 16},
                                          {3, 1},
                                          {3, 2},
                                          {3, 4},
                                          {3, 8},
                                          {4, 8},
                                          {4, 16},
                                          {6, 8},
                                          {6, 16}}};
constexpr int kMostSide = 80;  // more than four bands of rows and four blocks of the widest vectors

void put_word(File& file, std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<std::uint8_t>(value >> shift));
}

void put_chunk(File& file, std::string_view type, Bytes data) {
    put_word(file, static_cast<std::uint32_t>(data.size()));
    const std::size_t signed_from = file.size();
    file.insert(file.end(), type.begin(), type.end());
    file.insert(file.end(), data.begin(), data.end());
    put_word(file, libdeflate_crc32(0, file.data() + signed_from, file.size() - signed_from));
}

File compressed(Bytes rows) {
    static const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
        libdeflate_alloc_compressor(1), &libdeflate_free_compressor);
    File out(libdeflate_zlib_compress_bound(compressor.get(), rows.size()));
    out.resize(libdeflate_zlib_compress(compressor.get(), rows.data(), rows.size(), out.data(), out.size()));
    return out;
}

// Writes the image data in `pieces` chunks.
void put_data(File& file, Bytes data, std::size_t pieces) {
    const std::size_t each = data.size() / pieces;
    for (std::size_t i = 0; i + 1 < pieces; ++i, data = data.subspan(each)) put_chunk(file, "IDAT", data.first(each));
    put_chunk(file, "IDAT", data);
}

std::size_t row_bytes(const PngInfo& info) {
    if (info.interlaced) return png::adam7_bytes(info);
    return info.height * (1 + png::packed_row_bytes(info, info.width));
}

void run(Input input) {
    const Kind kind = kKinds[input.byte() % kKinds.size()];
    PngInfo info{input.between(1, kMostSide), input.between(1, kMostSide), kind.bit_depth, kind.color_type,
                 input.byte() % 2 == 1,       (kind.color_type & 4) != 0};
    const std::size_t colors = 1 + input.byte(), pieces = 1 + input.byte() % 4;
    const bool right_size = input.byte() % 8 != 0;
    const RowRange range{input.byte(), input.byte()};

    File file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    File header;
    put_word(header, static_cast<std::uint32_t>(info.width));
    put_word(header, static_cast<std::uint32_t>(info.height));
    header.insert(header.end(), {kind.bit_depth, kind.color_type, 0, 0, std::uint8_t{info.interlaced}});
    put_chunk(file, "IHDR", header);
    if (kind.color_type == 3) {
        File palette(3 * colors);
        for (std::size_t i = 0; i < palette.size(); ++i) palette[i] = static_cast<std::uint8_t>(37 * i);
        put_chunk(file, "PLTE", palette);
    }
    File rows(input.rest().begin(), input.rest().end());
    if (right_size) rows.resize(row_bytes(info));
    put_data(file, compressed(rows), pieces);
    put_chunk(file, "IEND", {});
    check_png(file, range);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
