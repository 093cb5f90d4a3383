// libjpeg compressor into memory, as the transcoder and the encoder use it: one baseline scan, a restart grid, Huffman
// codes for photographs or optimised ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/libjpeg.hpp"
#include "pack/photo_code.hpp"

namespace headrace {

struct JpegOutput {
    // Call it after setjmp(errors.jump).
    void create(ErrorManager& errors);
    ~JpegOutput() { jpeg_destroy_compress(&info); }

    // Sets the destination and how to write, after the caller has set parameters and before it starts; makes room for
    // `expected_bytes`. An interval of 0 means no restart markers. Without codes they are optimised; with codes,
    // coefficients must have sizes that 8-bit JPEG allows, since libjpeg does not check them.
    void begin(std::size_t expected_bytes, int restart_interval, const PhotoCodes* codes);
    // Ends the file and returns it.
    std::vector<std::uint8_t> finish();

    jpeg_compress_struct info{};

private:
    static boolean grow(j_compress_ptr);
    void set(const PhotoCodes&);

    jpeg_destination_mgr target_{};
    std::vector<std::uint8_t> bytes_;
};

}  // namespace headrace
