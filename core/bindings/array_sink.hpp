// Sink of decoded rows into one array, for bindings that decode a single image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "common/rows.hpp"

namespace headrace {

// Appends bands without row padding.
class ArraySink final : public RowSink {
public:
    ArraySink(int height, std::size_t row_bytes)
        : row_bytes_(row_bytes), memory_(std::make_unique<std::uint8_t[]>(height * row_bytes)), next_(memory_.get()) {}

    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override {
        for (int i = 0; i < count; ++i, next_ += row_bytes_) std::memcpy(next_, rows + i * stride_bytes, row_bytes_);
    }

    std::uint8_t* release() { return memory_.release(); }

private:
    std::size_t row_bytes_;
    std::unique_ptr<std::uint8_t[]> memory_;
    std::uint8_t* next_;
};

}  // namespace headrace
