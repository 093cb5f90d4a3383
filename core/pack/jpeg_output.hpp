// libjpeg compressor into memory, as the transcoder and the encoder use it: optimised Huffman tables, one baseline
// scan, a restart grid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/libjpeg.hpp"

namespace headrace {

struct JpegOutput {
    // Call it after setjmp(errors.jump).
    void create(ErrorManager& errors);
    ~JpegOutput() { jpeg_destroy_compress(&info); }

    // Sets the destination and how to write, after the caller has set parameters and before it starts; makes room for
    // `expected_bytes`. An interval of 0 means no restart markers.
    void begin(std::size_t expected_bytes, int restart_interval);
    // Ends the file and returns it.
    std::vector<std::uint8_t> finish();

    jpeg_compress_struct info{};

private:
    static boolean grow(j_compress_ptr);

    jpeg_destination_mgr target_{};
    std::vector<std::uint8_t> bytes_;
};

}  // namespace headrace
