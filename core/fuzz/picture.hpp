// Result of decoding one file: rows of bytes, or a fault.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/fault.hpp"
#include "common/rows.hpp"
#include "fuzz/require.hpp"

namespace headrace::fuzz {

struct Picture {
    std::optional<Code> fault;
    std::string why;
    int width = 0, height = 0, pixel_bytes = 0;
    std::vector<std::uint8_t> bytes;  // rows without padding; the unspecified fourth byte of RGBX is 0
};

// Sink that stores pixels [first, first + width) of its rows.
class PictureSink final : public RowSink {
public:
    PictureSink(Picture& picture, int first) : picture_(picture), first_(first) {}

    void take(const std::uint8_t* rows, std::size_t stride, int count) override {
        const std::size_t pixel = static_cast<std::size_t>(picture_.pixel_bytes), row = pixel * picture_.width;
        for (int i = 0; i < count; ++i) {
            const std::uint8_t* from = rows + i * stride + first_ * pixel;
            picture_.bytes.insert(picture_.bytes.end(), from, from + row);
        }
        if (pixel == 4) {
            for (std::size_t at = picture_.bytes.size() - count * row + 3; at < picture_.bytes.size(); at += 4) {
                picture_.bytes[at] = 0;
            }
        }
    }

private:
    Picture& picture_;
    int first_;
};

// Returns rows [top, bottom) and columns [left, right) of a picture.
inline Picture cut(const Picture& whole, int left, int top, int right, int bottom) {
    Picture part{{}, {}, right - left, bottom - top, whole.pixel_bytes, {}};
    const std::size_t stride = static_cast<std::size_t>(whole.width) * whole.pixel_bytes;
    for (int y = top; y < bottom; ++y) {
        const auto row = whole.bytes.begin() + static_cast<std::ptrdiff_t>(y * stride);
        part.bytes.insert(part.bytes.end(), row + left * whole.pixel_bytes, row + right * whole.pixel_bytes);
    }
    return part;
}

inline std::string text_of(const Picture& p) {
    if (p.fault) return "fault " + std::to_string(static_cast<int>(*p.fault)) + " (" + p.why + ")";
    return std::to_string(p.width) + "x" + std::to_string(p.height) + " pixels";
}

inline void require_same(const Picture& expected, const Picture& got, const std::string& what) {
    require(expected.fault == got.fault, what + ": expected " + text_of(expected) + ", got " + text_of(got));
    if (expected.fault) return;
    require(expected.width == got.width && expected.height == got.height && expected.bytes.size() == got.bytes.size(),
            what + ": expected " + text_of(expected) + ", got " + text_of(got));
    const auto [mine, other] = std::mismatch(expected.bytes.begin(), expected.bytes.end(), got.bytes.begin());
    const auto at = (mine - expected.bytes.begin()) / expected.pixel_bytes;
    require(mine == expected.bytes.end(), what + ": pixel (" + std::to_string(at % expected.width) + ", " +
                                              std::to_string(at / expected.width) + ") of " + text_of(expected) +
                                              " differs");
}

}  // namespace headrace::fuzz
