// The entropy-coded bytes of a scan without their stuffing, a piece at a time. ITU-T T.81, B.1.1.5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

class ScanBytes {
public:
    // No MCU is longer: 6 blocks of 64 symbols of at most 16 + 11 bits; and what a reader looks ahead.
    static constexpr std::ptrdiff_t kMostMcuBytes = 6 * 64 * 27 / 8 + 64;

    ScanBytes();
    // `scan` stays until the last call.
    void open(std::span<const std::uint8_t> scan);
    // Makes the segment after the last marker readable (at first: the one that begins the scan); where it begins.
    const std::uint8_t* begin_segment();
    // Makes sure that a whole MCU from `next` on is readable, or all that the segment has; `next` may move.
    const std::uint8_t* ensure(const std::uint8_t* next) {
        return end_ - next >= kMostMcuBytes || ended_ ? next : move_on(next);
    }
    // End of what is readable. Beyond it kMostMcuBytes may be read, but say nothing.
    const std::uint8_t* end() const { return end_; }
    // Whether the segment ends at end(), and by what: a marker's second byte, or 0 at the end of the file.
    bool ended() const { return ended_; }
    int marker() const { return marker_; }
    // Steps over the marker that ended the segment.
    void pass_marker() { in_ += 2; }

private:
    const std::uint8_t* move_on(const std::uint8_t* next);
    void fill(std::uint8_t* out);

    const std::uint8_t* in_ = nullptr;
    const std::uint8_t* in_end_ = nullptr;
    const std::uint8_t* end_ = nullptr;
    int marker_ = 0;
    bool ended_ = true;
    std::vector<std::uint8_t> piece_;
};

}  // namespace headrace
