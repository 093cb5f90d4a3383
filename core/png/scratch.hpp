// Memory that is written before it is read, and kept from image to image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headrace::png {

class Scratch {
public:
    // At least `bytes` bytes; what was in them is lost. Memory for one exceptionally large image is not kept.
    std::uint8_t* reserve(std::size_t bytes) {
        if (bytes > capacity_ || (capacity_ > kept_bytes && bytes <= kept_bytes)) {
            memory_.reset();  // first, so that old and new never coexist
            capacity_ = 0;
            memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
            capacity_ = bytes;
        }
        return memory_.get();
    }

private:
    static constexpr std::size_t kept_bytes = std::size_t{64} << 20;
    std::unique_ptr<std::uint8_t[]> memory_;
    std::size_t capacity_ = 0;
};

}  // namespace headrace::png
