// How a target reads the bytes that libFuzzer made up: options first, the content last.
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

    // Little-endian; zeros beyond the end.
    template <typename T>
    T take() {
        T value{};
        const std::size_t size = left_.size() < sizeof value ? left_.size() : sizeof value;
        if (size > 0) std::memcpy(&value, left_.data(), size);
        left_ = left_.subspan(size);
        return value;
    }
    std::uint8_t byte() { return take<std::uint8_t>(); }
    // From `low` to `high`, both included.
    int between(int low, int high) { return low + take<std::uint16_t>() % (high - low + 1); }
    // All that was not yet taken.
    Bytes rest() const { return left_; }

private:
    Bytes left_;
};

}  // namespace headrace::fuzz
