// Uninitialized scratch memory that is reused from image to image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headrace {

class Scratch {
public:
    static constexpr std::size_t default_kept_bytes = std::size_t{64} << 20;

    // Memory beyond `kept_bytes`, for one exceptionally large image, is freed at the next smaller request.
    explicit Scratch(std::size_t kept_bytes = default_kept_bytes) : kept_bytes_(kept_bytes) {}

    // Returns at least `bytes` bytes with unspecified content.
    std::uint8_t* reserve(std::size_t bytes) {
        if (bytes > capacity_ || (capacity_ > kept_bytes_ && bytes <= kept_bytes_)) {
            memory_.reset();  // first, so that old and new never coexist
            capacity_ = 0;
            memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
            capacity_ = bytes;
        }
        return memory_.get();
    }

    // The same, aligned to 64 bytes so that vectors do not straddle cache lines.
    std::uint8_t* reserve_aligned(std::size_t bytes) {
        std::uint8_t* at = reserve(bytes + 63);
        return at + (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
    }

private:
    std::size_t kept_bytes_;
    std::unique_ptr<std::uint8_t[]> memory_;
    std::size_t capacity_ = 0;
};

}  // namespace headrace
