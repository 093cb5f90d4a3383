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
    ended_ = false;
}

const std::uint8_t* ScanBytes::begin_segment() {
    fill(piece_.data());
    return piece_.data();
}

const std::uint8_t* ScanBytes::skip_segment() {
    while (!ended_) {
        const void* const ff = std::memchr(in_, 0xFF, static_cast<std::size_t>(in_end_ - in_));
        in_ = ff == nullptr ? in_end_ : static_cast<const std::uint8_t*>(ff);
        if (!ends_at(in_)) in_ += 2;
    }
    return end_;
}

// Sets marker_ and ended_. Returns false for a stuffed 0xFF.
bool ScanBytes::ends_at(const std::uint8_t* ff) {
    const bool pair = in_end_ - ff >= 2;
    if (pair && ff[1] == 0) return false;
    marker_ = pair ? ff[1] : 0;
    ended_ = true;
    return true;
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
        if (ends_at(in)) break;
        *out++ = 0xFF;
        in += 2;
    }
    in_ = in;
    end_ = out;
}

}  // namespace headrace
