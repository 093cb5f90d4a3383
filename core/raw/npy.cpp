#include "raw/npy.hpp"

#include <string_view>

#include "common/fault.hpp"

namespace headrace {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kPreamble = 10;  // magic, version 1.0, length of the header
constexpr int kMostDigits = 9;

[[noreturn]] void decline() { throw Fault(Code::declined, "an array of another kind"); }

void expect_bytes(std::size_t count, std::span<const std::uint8_t> start, std::size_t file_bytes) {
    if (file_bytes < count) decline();
    if (start.size() < count) throw Fault(Code::corrupt, "NPY whose header is cut short");
}

// Reader of a header's text from its start on.
class Text {
public:
    explicit Text(std::string_view text) : text_(text) {}

    bool skip(std::string_view expected) {
        if (!text_.starts_with(expected)) return false;
        text_.remove_prefix(expected.size());
        return true;
    }
    void expect(std::string_view expected) {
        if (!skip(expected)) decline();
    }
    std::int64_t number() {
        std::int64_t value = 0;
        int digits = 0;
        for (; !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; ++digits, text_.remove_prefix(1)) {
            if (digits == kMostDigits) decline();
            value = 10 * value + text_[0] - '0';
        }
        if (digits == 0) decline();
        return value;
    }

private:
    std::string_view text_;
};

}  // namespace

bool is_npy(std::span<const std::uint8_t> file) {
    return std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).starts_with(kMagic);
}

NpyInfo read_npy(std::span<const std::uint8_t> start, std::size_t file_bytes) {
    expect_bytes(kPreamble, start, file_bytes);
    if (start[6] != 1 || start[7] != 0) decline();
    NpyInfo info;
    info.offset = kPreamble + start[8] + 256 * std::size_t{start[9]};
    expect_bytes(info.offset, start, file_bytes);
    Text text({reinterpret_cast<const char*>(start.data()) + kPreamble, info.offset - kPreamble});
    text.expect("{'descr': '");
    if (text.skip("<u2")) {
        info.type = PixelType::u16;
    } else if (text.skip("<f4")) {
        info.type = PixelType::f32;
    } else {
        text.expect("|u1");
    }
    text.expect("', 'fortran_order': False, 'shape': (");
    do {
        if (info.dimensions == 3) decline();
        info.shape[info.dimensions++] = text.number();
    } while (text.skip(", "));
    text.expect("), }");
    if (info.dimensions < 2) decline();
    return info;
}

}  // namespace headrace
