// Lossless rewriting of a JPEG for windowed decoding: the same coefficients, quantisation tables and markers (EXIF, ICC
// and all others) in one baseline scan with a restart grid, which EntropyDecoder jumps by. All files share Huffman
// codes, except those that would grow too much, if they are large or had codes of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/limits.hpp"

namespace headrace {

// Returns the new file, or nothing where the old one should stay: it has a restart grid, is small, would grow by more
// than windows gain, is damaged but decodable, or cannot be a baseline JPEG with one scan. An interval asked for is
// used whatever it gains. Data after the end of the image is dropped. Throws Fault as JpegDecoder does: corrupt, limit,
// unsupported.
std::optional<std::vector<std::uint8_t>> transcode_jpeg(std::span<const std::uint8_t> file, const Limits&,
                                                        std::optional<int> restart_interval);

}  // namespace headrace
