// Streams rows of a source window into an output image: rows come in top to bottom while they are hot in cache,
// finished output rows leave at once, and only as many intermediate rows are kept as the filter is tall.
#pragma once

#include <cstdint>
#include <vector>

#include "common/rows.hpp"
#include "resample/kernels.hpp"
#include "resample/taps.hpp"

namespace headrace {

// Receives finished rows, y from 0 up; of RGBX bytes unless it says otherwise. The row has kRowSlack readable pixels
// behind it.
class PixelRows {
public:
    virtual ~PixelRows() = default;
    virtual void write(int y, const std::uint8_t* pixels) = 0;
};

// What to resample, in pixels of the source that the rows are cut from.
struct Window {
    double x0, y0, x1, y1;
    int left, top, right, bottom;  // taps stay inside
    int width, height;             // of the output
    bool mirror;                   // left to right
};

// The rows and columns of the source that a window needs.
struct Reach {
    int left, top, right, bottom;
};
Reach reach_of(const Window&, Filter);

// With every filter but nearest.
class Resampler final : public RowSink {
public:
    explicit Resampler(const Kernels& kernels) : kernels_(&kernels) {}

    // Rows taken from now on are source rows `first_row`, first_row + 1, … and hold `columns` source pixels from
    // `first_column` on. They must cover reach_of(window, filter) and be readable kReadableBeyond bytes past their end.
    void start(const Window&, Filter filter, int first_row, int first_column, int columns, PixelRows& out);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;
    bool finished() const { return next_output_ == window_.height; }

private:
    void pack_horizontal(int first_column, int columns);
    void take_band(const std::uint8_t* rows, std::size_t stride, int count);
    void emit_ready();

    const Kernels* kernels_;
    PixelRows* out_ = nullptr;
    Window window_{};
    bool has_lobes_ = false;
    Taps across_, down_;
    std::vector<std::int32_t> starts_;   // PackedTaps::start
    std::vector<std::int16_t> weights_;  // PackedTaps::weight
    PackedTaps packed_{};
    std::vector<std::int16_t> ring_;  // intermediate rows, by source row modulo ring_rows_
    int ring_rows_ = 0, ring_stride_ = 0;
    int next_row_ = 0, next_output_ = 0;
    std::vector<std::uint8_t> line_;  // one finished row
    std::vector<const std::int16_t*> tap_rows_;
};

}  // namespace headrace
