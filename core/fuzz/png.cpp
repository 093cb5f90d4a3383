// PNG files, with chunk CRCs optionally recomputed after a mutation: otherwise the CRC check would hide the rest.
#include <libdeflate.h>

#include <vector>

#include "fuzz/png_checks.hpp"

namespace headrace::fuzz {
namespace {

constexpr std::size_t kSignatureBytes = 8, kFrameBytes = 12;

std::uint32_t big_endian(const std::uint8_t* p) {
    return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

// Sets the correct CRC of each complete chunk.
void sign_chunks(std::vector<std::uint8_t>& file) {
    for (std::size_t at = kSignatureBytes; file.size() - at >= kFrameBytes;) {
        const std::size_t length = big_endian(file.data() + at);
        if (length > file.size() - at - kFrameBytes) return;
        const std::uint32_t crc = libdeflate_crc32(0, file.data() + at + 4, length + 4);
        for (int i = 0; i < 4; ++i) file[at + 8 + length + i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
        at += kFrameBytes + length;
    }
}

void run(Input input) {
    const bool sign = input.byte() % 2 == 1;
    const RowRange range{input.byte(), input.byte()};
    std::vector<std::uint8_t> file(input.rest().begin(), input.rest().end());
    if (sign && file.size() >= kSignatureBytes) sign_chunks(file);
    check_png(file, range);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
