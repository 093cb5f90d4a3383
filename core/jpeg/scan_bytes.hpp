// Reader of a scan's entropy-coded bytes without stuffing, in pieces. ITU-T T.81, B.1.1.5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

class ScanBytes {
public:
    // Maximum size of an MCU: 6 blocks of 64 symbols of at most 16 + 11 bits, plus the reader's look-ahead.
    static constexpr std::ptrdiff_t kMostMcuBytes = 6 * 64 * 27 / 8 + 64;

    ScanBytes();
    // `scan` must stay valid until the last call.
    void open(std::span<const std::uint8_t> scan);
    // Makes the segment after the last marker readable (initially the scan's first) and returns its start.
    const std::uint8_t* begin_segment();
    // Skips the rest of the segment, as end() then does too, and returns end(). Three times as fast as reading it.
    const std::uint8_t* skip_segment();
    // Ensures that a whole MCU from `next` on is readable, or the rest of the segment; returns `next`, possibly moved.
    const std::uint8_t* ensure(const std::uint8_t* next) {
        return end_ - next >= kMostMcuBytes || ended_ ? next : move_on(next);
    }
    // End of the readable bytes. The next kMostMcuBytes may be read but are meaningless.
    const std::uint8_t* end() const { return end_; }
    // True if the segment ends at end(); marker() is the marker's second byte, or 0 at the end of the file.
    bool ended() const { return ended_; }
    int marker() const { return marker_; }
    // Skips the marker that ended the segment.
    void pass_marker() {
        in_ += 2;
        ended_ = false;
    }

private:
    const std::uint8_t* move_on(const std::uint8_t* next);
    void fill(std::uint8_t* out);
    bool ends_at(const std::uint8_t* ff);

    const std::uint8_t* in_ = nullptr;
    const std::uint8_t* in_end_ = nullptr;
    const std::uint8_t* end_ = nullptr;
    int marker_ = 0;
    bool ended_ = true;
    std::vector<std::uint8_t> piece_;
};

}  // namespace headrace
