#include "jpeg/orientation.hpp"

#include <algorithm>
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
    // The number in an entry of a directory, signed or not; 0 for other types, and for several.
    std::uint32_t number(std::size_t entry) const {
        const std::uint32_t type = read16(entry + 2);
        if (read32(entry + 4) != 1) return 0;
        return type == 3 || type == 8 ? read16(entry + 8) : type == 4 || type == 9 ? read32(entry + 8) : 0;
    }

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

int jpeg_orientation(std::span<const std::uint8_t> file) {
    constexpr std::uint8_t kApp1 = 0xE1, kScan = 0xDA;
    for (std::size_t at = 2; at + 4 <= file.size();) {
        const std::uint8_t marker = file[at + 1];
        if (file[at] != 0xFF || marker == 0xFF || marker == 0) {  // libjpeg skips the same bytes
            ++at;
            continue;
        }
        if (marker == kScan) return 1;
        at += 2;
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) continue;  // TEM and RST have no length
        const std::size_t length = static_cast<std::size_t>(file[at]) << 8 | file[at + 1];
        const auto segment = file.subspan(at, std::min(length, file.size() - at));
        if (marker == kApp1 && segment.size() >= 8 && std::memcmp(segment.data() + 2, "Exif\0\0", 6) == 0)
            return tiff_orientation(segment.subspan(8));
        at += length;
    }
    return 1;
}

int tiff_orientation(std::span<const std::uint8_t> bytes) {
    Tiff tiff(bytes);
    if (!tiff.open()) return 1;
    const std::size_t directory = tiff.read32(4);
    const std::uint32_t entries = tiff.read16(directory);
    for (std::uint32_t i = 0; i < entries; ++i) {
        const std::size_t entry = directory + 2 + 12 * static_cast<std::size_t>(i);
        if (tiff.read16(entry) != 0x0112) continue;
        const std::uint32_t value = tiff.number(entry);
        return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
    return 1;
}

}  // namespace headrace
