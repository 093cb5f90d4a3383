#include "raw/pnm.hpp"

#include "common/fault.hpp"
#include "raw/size.hpp"

namespace headrace {

namespace {

constexpr int kMostDigits = 10;  // as in Pillow

bool is_space(std::uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

// Reads whitespace-separated numbers. A comment between them extends to the end of its line.
class Header {
public:
    explicit Header(std::span<const std::uint8_t> file) : file_(file) {}

    // Reads a number and the single byte of whitespace after it.
    std::int64_t number() {
        for (std::uint8_t byte = peek(); is_space(byte) || byte == '#'; byte = peek()) {
            if (byte == '#')
                while (peek() != '\n' && peek() != '\r') ++at_;
            ++at_;
        }
        std::int64_t value = 0;
        for (int digits = 0; !is_space(peek()) || digits == 0; ++digits, ++at_) {
            if (peek() < '0' || peek() > '9' || digits == kMostDigits) {
                throw Fault(Code::declined, "PNM whose header holds what is no number");
            }
            value = 10 * value + peek() - '0';
        }
        ++at_;
        return value;
    }
    std::size_t at() const { return at_; }

private:
    std::uint8_t peek() const {
        if (at_ >= file_.size()) throw Fault(Code::corrupt, "PNM whose header is cut short");
        return file_[at_];
    }

    std::span<const std::uint8_t> file_;
    std::size_t at_ = 2;
};

}  // namespace

bool is_pnm(std::span<const std::uint8_t> file) {
    return file.size() >= 3 && file[0] == 'P' && (file[1] == '5' || file[1] == '6') && is_space(file[2]);
}

PnmInfo read_pnm(std::span<const std::uint8_t> start, std::size_t file_bytes, const Limits& limits) {
    Header header(start);
    PnmInfo info;
    info.channels = start[1] == '6' ? 3 : 1;
    const std::int64_t width = header.number(), height = header.number(), most = header.number();
    check_size("PNM", width, height, limits);
    info.width = static_cast<int>(width);
    info.height = static_cast<int>(height);
    info.sample_bytes = most == 65535 ? 2 : 1;
    info.offset = header.at();
    if (most != 255 && (most != 65535 || info.channels == 3)) {
        throw Fault(Code::declined, "PNM of samples up to " + std::to_string(most));
    }
    const std::int64_t bytes =
        width * height * info.channels * info.sample_bytes + static_cast<std::int64_t>(info.offset);
    check_whole("PNM", bytes, file_bytes);
    if (static_cast<std::int64_t>(file_bytes) > bytes) throw Fault(Code::declined, "PNM with bytes after its pixels");
    return info;
}

}  // namespace headrace
