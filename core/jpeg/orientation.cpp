#include "jpeg/orientation.hpp"

#include <cstring>

namespace headrace {

namespace {

class Tiff {
public:
    explicit Tiff(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

    bool open() {
        if (bytes_.size() < 8) return false;
        little_ = bytes_[0] == 'I' && bytes_[1] == 'I';
        const bool big = bytes_[0] == 'M' && bytes_[1] == 'M';
        return (little_ || big) && read16(2) == 42;
    }
    // 0 past the end, where no valid field is.
    std::uint32_t read16(std::size_t at) const { return read(at, 2); }
    std::uint32_t read32(std::size_t at) const { return read(at, 4); }

private:
    std::uint32_t read(std::size_t at, std::size_t size) const {
        if (at > bytes_.size() || bytes_.size() - at < size) return 0;
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < size; ++i) value = value << 8 | bytes_[little_ ? at + size - 1 - i : at + i];
        return value;
    }

    std::span<const std::uint8_t> bytes_;
    bool little_ = false;
};

}  // namespace

int exif_orientation(std::span<const std::uint8_t> app1) {
    if (app1.size() < 6 || std::memcmp(app1.data(), "Exif\0\0", 6) != 0) return 1;
    return tiff_orientation(app1.subspan(6));
}

int tiff_orientation(std::span<const std::uint8_t> bytes) {
    Tiff tiff(bytes);
    if (!tiff.open()) return 1;
    const std::size_t directory = tiff.read32(4);
    const std::uint32_t entries = tiff.read16(directory);
    for (std::uint32_t i = 0; i < entries; ++i) {
        const std::size_t entry = directory + 2 + 12 * static_cast<std::size_t>(i);
        if (tiff.read16(entry) != 0x0112) continue;
        const std::uint32_t value = tiff.read16(entry + 8);
        return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
    return 1;
}

}  // namespace headrace
