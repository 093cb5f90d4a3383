#include "dense/mask_target.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/fault.hpp"

namespace headrace {

namespace {

template <typename Value>
void fill(std::uint8_t* at, std::size_t count, std::int64_t value) {
    std::fill_n(reinterpret_cast<Value*>(at), count, static_cast<Value>(value));
}

std::uint16_t value_at(const std::uint8_t* pixels, int x, PixelType type) {
    if (type == PixelType::u8) return pixels[x];
    std::uint16_t value;
    std::memcpy(&value, pixels + 2 * static_cast<std::size_t>(x), 2);
    return value;
}

}  // namespace

void MaskTarget::start(const MaskFormat& format, std::uint8_t* at, const Placement& place, PixelType type) {
    format_ = format;
    at_ = at;
    place_ = place;
    type_ = type;
    copied_ = is_copied();
    if (!place.pads()) return;
    const auto fill_all = format.bytes == 1   ? fill<std::uint8_t>
                          : format.bytes == 2 ? fill<std::int16_t>
                          : format.bytes == 4 ? fill<std::int32_t>
                                              : fill<std::int64_t>;
    fill_all(at, place.pixels(), format.ignore);
}

bool MaskTarget::is_copied() const {
    if (format_.bytes != 1 || type_ != PixelType::u8) return false;
    for (int value = 0; value < 256; ++value)
        if (format_.table[value] != value) return false;
    return true;
}

void MaskTarget::write(int y, const std::uint8_t* pixels) {
    std::uint8_t* out = at_ + place_.pixel(y) * format_.bytes;
    if (copied_) {
        std::memcpy(out, pixels, static_cast<std::size_t>(place_.inner_width));
        return;
    }
    switch (format_.bytes) {
        case 1:
            return write_as<std::uint8_t>(out, pixels);
        case 2:
            return write_as<std::int16_t>(out, pixels);
        case 4:
            return write_as<std::int32_t>(out, pixels);
        default:
            return write_as<std::int64_t>(out, pixels);
    }
}

template <typename Value>
void MaskTarget::write_as(std::uint8_t* out, const std::uint8_t* pixels) const {
    Value* values = reinterpret_cast<Value*>(out);
    bool placed = true;
    for (int x = 0; x < place_.inner_width; ++x) {
        const std::int64_t value = format_.table[value_at(pixels, x, type_)];
        placed &= value != MaskFormat::kNoPlace;
        values[x] = static_cast<Value>(value);
    }
    if (placed) return;
    for (int x = 0; x < place_.inner_width; ++x) {
        const std::uint16_t value = value_at(pixels, x, type_);
        if (format_.table[value] != MaskFormat::kNoPlace) continue;
        throw Fault(Code::corrupt, "expected values that remap= and dtype= have a place for, got " +
                                       std::to_string(value) + " in the mask; name it in remap=, or a larger dtype=");
    }
}

}  // namespace headrace
