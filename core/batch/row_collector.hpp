// Buffer of a decoded image's rows, for several crops.
#pragma once

#include <cstring>

#include "common/rows.hpp"
#include "common/scratch.hpp"

namespace headrace {

// Part of a decoded image as RGBX bytes: `rows` rows from `first_row` on, `columns` pixels from `first_column` on.
class RowCollector final : public RowSink {
public:
    void start(int first_row, int rows, int first_column, int columns) {
        first_row_ = first_row;
        first_column_ = first_column;
        columns_ = columns;
        memory_ = scratch_.reserve(stride() * rows + kReadableBeyond);
        next_ = memory_;
    }
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override {
        for (int row = 0; row < count; ++row, next_ += stride()) {
            std::memcpy(next_, rows + row * stride_bytes, stride());
        }
    }

    int first_column() const { return first_column_; }
    int columns() const { return columns_; }
    std::size_t stride() const { return std::size_t{4} * columns_; }
    // Readable kReadableBeyond bytes past the end of the last row.
    const std::uint8_t* row(int y) const { return memory_ + stride() * (y - first_row_); }

private:
    Scratch scratch_;
    std::uint8_t* memory_ = nullptr;
    std::uint8_t* next_ = nullptr;
    int first_row_ = 0, first_column_ = 0, columns_ = 0;
};

}  // namespace headrace
