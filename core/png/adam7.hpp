// Adam7 interlacing: a PNG as seven small images, the pixels of seven grids.
// https://www.w3.org/TR/png-3/#8InterlaceMethods
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/scratch.hpp"
#include "png/chunks.hpp"
#include "png/row_decoder.hpp"

namespace headrace::png {

// Bytes of the rows of all passes, including filter bytes.
std::size_t adam7_bytes(const PngInfo& info);

class Adam7 {
public:
    // Decodes the consecutive passes in `raw` into `image`: info.height rows of `stride` bytes, in the layout that
    // `rows` was set to. Throws Fault(corrupt).
    void decode(const PngInfo& info, const std::uint8_t* raw, RowDecoder& rows, std::uint8_t* image,
                std::size_t stride);

private:
    Scratch row_memory_;
};

}  // namespace headrace::png
