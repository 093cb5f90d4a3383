// Single pictures in YUV4MPEG2, with the component planes of a JPEG before chroma upsampling: decoded to the pixels of
// the JPEG, bit for bit. https://wiki.multimedia.cx/index.php/YUV4MPEG2
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/limits.hpp"
#include "common/rows.hpp"
#include "jpeg/pixels.hpp"

namespace headrace {

struct Y4mInfo {
    int width = 0, height = 0;
    Sampling sampling = Sampling::grey;
    std::size_t offset = 0;  // of the first plane in the file

    int planes() const { return sampling == Sampling::grey ? 1 : 3; }
    int plane_width(int plane) const { return plane == 0 ? width : (width + across(sampling) - 1) / across(sampling); }
    int plane_height(int plane) const { return plane == 0 ? height : (height + down(sampling) - 1) / down(sampling); }
    std::int64_t plane_bytes(int plane) const { return std::int64_t{plane_width(plane)} * plane_height(plane); }
    // Bytes of all planes.
    std::int64_t bytes() const;
};

bool is_y4m(std::span<const std::uint8_t> file);

// Returns the text before the planes. Throws Fault(declined) for h1v2, for which the format has no name.
std::string y4m_header(const Y4mInfo&);

// Reads the header of a file of `file_bytes` bytes from its `start`, and checks that one frame is all that follows.
// Throws Fault: corrupt (which may mean that the header extends beyond `start`), limit, unsupported (interlaced,
// another colour space or range than a JPEG's, several frames).
Y4mInfo read_y4m(std::span<const std::uint8_t> start, std::size_t file_bytes, const Limits& limits);

// Decoder for one thread; reuses its rows between images.
class Y4mDecoder {
public:
    explicit Y4mDecoder(Level level) : kernels_(pixel_kernels(level)) {}

    // Reads the header, as read_y4m() does. `file` must stay valid until decode() returns.
    const Y4mInfo& open(std::span<const std::uint8_t> file, const Limits& limits);
    // Passes rows [top, bottom) of the columns [left, right) to the sink, as RGBX bytes in bands. Reads only these rows
    // of the file, and the chroma rows above and below.
    void decode(int left, int top, int right, int bottom, RowSink& sink);

private:
    static constexpr int kChromaRows = 4;  // of each plane in memory; a power of two, at least 3

    const std::uint8_t* plane_row(int plane, int y) const;
    const std::uint8_t* luma_row(int y);
    void load_chroma(int y);
    void convert(int y, std::uint8_t* out);
    std::uint8_t* chroma(int plane, int y) {
        return chroma_.data() + ((plane - 1) * kChromaRows + y % kChromaRows) * chroma_stride_ + kPixelSlack;
    }

    const PixelKernels& kernels_;
    std::span<const std::uint8_t> file_;
    Y4mInfo info_;
    Sampling made_ = Sampling::grey;  // of the rows in `chroma_`
    int left_ = 0, columns_ = 0, loaded_ = 0;
    std::size_t chroma_stride_ = 0;
    std::vector<std::uint8_t> chroma_, luma_, band_;
};

}  // namespace headrace
