#include "jpeg/scan_bytes.hpp"

#include <bit>
#include <cstring>

namespace headrace {

namespace {

// Small enough to fit in the L1 cache together with the tables.
constexpr std::ptrdiff_t kPieceBytes = 8192;

// Returns 0x80 in the lowest 0xFF byte, and 0 below it.
std::uint64_t first_ff(std::uint64_t bytes) { return (~bytes - 0x0101010101010101) & bytes & 0x8080808080808080; }

}  // namespace

ScanBytes::ScanBytes() : piece_(kPieceBytes + 2 * kMostMcuBytes) {}

void ScanBytes::open(std::span<const std::uint8_t> scan) {
    in_ = scan.data();
    in_end_ = in_ + scan.size();
}

const std::uint8_t* ScanBytes::begin_segment() {
    ended_ = false;
    fill(piece_.data());
    return piece_.data();
}

const std::uint8_t* ScanBytes::move_on(const std::uint8_t* next) {
    const auto left = static_cast<std::size_t>(end_ - next);
    std::memmove(piece_.data(), next, left);
    fill(piece_.data() + left);
    return piece_.data();
}

void ScanBytes::fill(std::uint8_t* out) {
    const std::uint8_t* const full = piece_.data() + kPieceBytes;
    const std::uint8_t* in = in_;
    while (out < full) {
        if (std::endian::native == std::endian::little && in_end_ - in >= 8) {
            std::uint64_t bytes;
            std::memcpy(&bytes, in, 8);
            std::memcpy(out, &bytes, 8);
            const std::uint64_t found = first_ff(bytes);
            const int plain = found == 0 ? 8 : std::countr_zero(found) / 8;
            in += plain;
            out += plain;
            if (found == 0) continue;
        } else if (in < in_end_ && *in != 0xFF) {
            *out++ = *in++;
            continue;
        }
        const bool pair = in_end_ - in >= 2;
        if (!pair || in[1] != 0) {
            marker_ = pair ? in[1] : 0;
            ended_ = true;
            break;
        }
        *out++ = 0xFF;
        in += 2;
    }
    in_ = in;
    end_ = out;
}

}  // namespace headrace
