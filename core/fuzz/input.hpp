// Reader of libFuzzer's bytes for a target: options first, content last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace headrace::fuzz {

using Bytes = std::span<const std::uint8_t>;

class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

    bool empty() const { return left_.empty(); }

    // Takes a little-endian value; bytes past the end are zero.
    template <typename T>
    T take() {
        T value{};
        const std::size_t size = left_.size() < sizeof value ? left_.size() : sizeof value;
        if (size > 0) std::memcpy(&value, left_.data(), size);
        left_ = left_.subspan(size);
        return value;
    }
    std::uint8_t byte() { return take<std::uint8_t>(); }
    // Takes a number from `low` to `high`, inclusive.
    int between(int low, int high) { return low + take<std::uint16_t>() % (high - low + 1); }
    // All remaining bytes.
    Bytes rest() const { return left_; }

private:
    Bytes left_;
};

}  // namespace headrace::fuzz
