#include "raw/y4m.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "common/fault.hpp"
#include "raw/size.hpp"

namespace headrace {

namespace {

constexpr std::string_view kMagic = "YUV4MPEG2 ", kFrame = "FRAME";
constexpr std::string_view kNames[kSamplings] = {"mono", "444", "422", "", "420jpeg"};
constexpr std::size_t kMostHeaderBytes = 256;  // of each line
constexpr int kBandRows = 16;

// Takes the line that begins at `at`, and moves `at` past it.
std::string_view take_line(std::span<const std::uint8_t> file, std::size_t& at) {
    const std::string_view rest(reinterpret_cast<const char*>(file.data()) + at,
                                std::min(file.size() - at, kMostHeaderBytes));
    const std::size_t end = rest.find('\n');
    if (end == rest.npos) throw Fault(Code::corrupt, "Y4M whose header does not end");
    at += end + 1;
    return rest.substr(0, end);
}

int number_of(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw Fault(Code::corrupt, "Y4M: expected a number of pixels, got " + std::string(text));
    }
    return value;
}

Sampling sampling_named(std::string_view name) {
    const auto* found = std::find(kNames, kNames + kSamplings, name);
    if (found == kNames + kSamplings || name.empty()) {
        throw Fault(Code::unsupported,
                    "Y4M: expected colour space 420jpeg, 422, 444 or mono, got " + std::string(name));
    }
    return static_cast<Sampling>(found - kNames);
}

void read_parameters(std::string_view line, Y4mInfo& info) {
    bool full = false;
    info.sampling = Sampling::h2v2;
    while (!line.empty()) {
        const std::size_t end = std::min(line.find(' '), line.size());
        const std::string_view word = line.substr(0, end), value = word.substr(std::min<std::size_t>(1, end));
        line.remove_prefix(std::min(end + 1, line.size()));
        if (word.starts_with('W')) info.width = number_of(value);
        if (word.starts_with('H')) info.height = number_of(value);
        if (word.starts_with('C')) info.sampling = sampling_named(value);
        if (word.starts_with('I') && value != "p") throw Fault(Code::unsupported, "Y4M of interlaced rows");
        full = full || word == "XCOLORRANGE=FULL";
    }
    if (!full) throw Fault(Code::unsupported, "Y4M: expected XCOLORRANGE=FULL, as in a JPEG");
}

}  // namespace

std::int64_t Y4mInfo::bytes() const { return plane_bytes(0) + (planes() - 1) * plane_bytes(1); }

bool is_y4m(std::span<const std::uint8_t> file) {
    return file.size() >= kMagic.size() && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0;
}

std::string y4m_header(const Y4mInfo& info) {
    const std::string_view name = kNames[static_cast<int>(info.sampling)];
    if (name.empty()) throw Fault(Code::declined, "chroma subsampled vertically only");
    return std::string(kMagic) + "W" + std::to_string(info.width) + " H" + std::to_string(info.height) +
           " F1:1 Ip A1:1 C" + std::string(name) + " XCOLORRANGE=FULL\n" + std::string(kFrame) + "\n";
}

Y4mInfo read_y4m(std::span<const std::uint8_t> start, std::size_t file_bytes, const Limits& limits) {
    Y4mInfo info;
    info.offset = kMagic.size();
    read_parameters(take_line(start, info.offset), info);
    check_size("Y4M", info.width, info.height, limits);
    const std::string_view frame = take_line(start, info.offset);
    if (frame.substr(0, kFrame.size()) != kFrame) throw Fault(Code::corrupt, "Y4M without a frame");
    const std::int64_t bytes = static_cast<std::int64_t>(info.offset) + info.bytes();
    check_whole("Y4M", bytes, file_bytes);
    if (static_cast<std::int64_t>(file_bytes) > bytes) {
        throw Fault(Code::unsupported, "Y4M: expected one frame, got bytes after it");
    }
    return info;
}

const Y4mInfo& Y4mDecoder::open(std::span<const std::uint8_t> file, const Limits& limits) {
    file_ = file;
    return info_ = read_y4m(file, file.size(), limits);
}

const std::uint8_t* Y4mDecoder::plane_row(int plane, int y) const {
    const std::int64_t before = plane == 0 ? 0 : info_.plane_bytes(0) + (plane - 1) * info_.plane_bytes(1);
    return file_.data() + info_.offset + before + std::int64_t{y} * info_.plane_width(plane);
}

// Returns the file's own row, or a copy where the kernels would read past the end of the file.
const std::uint8_t* Y4mDecoder::luma_row(int y) {
    const std::uint8_t* row = plane_row(0, y) + left_;
    const auto count = static_cast<std::size_t>(columns_);
    if (static_cast<std::size_t>(file_.data() + file_.size() - row) >= count + kPixelSlack) return row;
    std::memcpy(luma_.data(), row, count);
    return luma_.data();
}

// Copies the window's part of the chroma rows up to `y`, with the samples beside it; the image's edges are repeated.
void Y4mDecoder::load_chroma(int y) {
    const int step = across(info_.sampling), width = info_.plane_width(1), first = left_ / step;
    const int count = (left_ + columns_ + step - 1) / step - first;
    for (; loaded_ <= y; ++loaded_) {
        for (int plane = 1; plane < 3; ++plane) {
            const std::uint8_t* from = plane_row(plane, loaded_) + first;
            std::uint8_t* to = chroma(plane, loaded_);
            if (across(made_) == step) {
                std::memcpy(to, from, static_cast<std::size_t>(count));
                to[-1] = first > 0 ? from[-1] : from[0];
                to[count] = first + count < width ? from[count] : from[count - 1];
            } else {
                for (int x = 0; x < columns_; ++x) to[x] = from[x / 2];
            }
        }
    }
}

void Y4mDecoder::convert(int y, std::uint8_t* out) {
    PixelRow row{luma_row(y), nullptr, nullptr, nullptr, nullptr, columns_, y % 2, out};
    if (info_.planes() == 3) {
        const int near = y / down(info_.sampling), beside = y % 2 == 0 ? near - 1 : near + 1;
        const int far = down(made_) == 1 ? near : std::clamp(beside, 0, info_.plane_height(1) - 1);
        load_chroma(std::max(near, far));
        row.cb = chroma(1, near);
        row.cb_far = chroma(1, far);
        row.cr = chroma(2, near);
        row.cr_far = chroma(2, far);
    }
    kernels_.convert[static_cast<int>(made_)](row);
}

void Y4mDecoder::decode(int left, int top, int right, int bottom, RowSink& sink) {
    left_ = left - left % 2;  // the kernels begin with an even pixel
    columns_ = right - left_;
    made_ = is_narrow(info_.sampling, info_.width) ? Sampling::h1v1 : info_.sampling;
    loaded_ = std::max(0, top / down(info_.sampling) - 1);
    const std::size_t row = static_cast<std::size_t>(columns_) + 2 * kPixelSlack, stride = std::size_t{4} * columns_;
    const auto grow = [](std::vector<std::uint8_t>& rows, std::size_t bytes) {
        if (rows.size() < bytes) rows.resize(bytes);
    };
    chroma_stride_ = row;
    grow(luma_, row);
    grow(chroma_, 2 * kChromaRows * row);
    grow(band_, kBandRows * stride + 4 * kPixelSlack);
    const std::size_t skipped = std::size_t{4} * (left - left_);
    for (int y = top; y < bottom;) {
        const int count = std::min(kBandRows, bottom - y);
        for (int i = 0; i < count; ++i) convert(y + i, band_.data() + i * stride);
        sink.take(band_.data() + skipped, stride, count);
        y += count;
    }
}

}  // namespace headrace
