// Streams rows of a source window into an output image: rows arrive top to bottom while hot in cache, finished output
// rows are written immediately, and intermediate rows are stored only for the filter's height.
#pragma once

#include <cstdint>
#include <vector>

#include "common/rows.hpp"
#include "resample/kernels.hpp"
#include "resample/taps.hpp"

namespace headrace {

// Receiver of finished rows, y from 0 up; RGBX bytes unless stated otherwise. Each row has kRowSlack readable pixels
// after its end.
class PixelRows {
public:
    virtual ~PixelRows() = default;
    virtual void write(int y, const std::uint8_t* pixels) = 0;
};

// Window to resample, in source pixels.
struct Window {
    double x0, y0, x1, y1;
    int left, top, right, bottom;  // bounds of the taps
    int width, height;             // of the output
    bool mirror;                   // horizontal flip
    bool backward_x, backward_y;   // nearest rounds ties as in the mirrored source
};

// Rows and columns of the source that a window needs.
struct Reach {
    int left, top, right, bottom;
};
Reach reach_of(const Window&, Filter);

// Resampler for all filters except nearest.
class Resampler final : public RowSink {
public:
    explicit Resampler(const Kernels& kernels) : kernels_(&kernels) {}

    // The next rows are source rows `first_row`, first_row + 1, … with `columns` source pixels from `first_column` on.
    // They must cover reach_of(window, filter) and be readable kReadableBeyond bytes past their end.
    void start(const Window&, Filter filter, int first_row, int first_column, int columns, PixelRows& out);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;
    bool finished() const { return next_output_ == window_.height; }

private:
    void pack_horizontal(int first_column, int columns);
    void take_band(const std::uint8_t* rows, std::size_t stride, int count);
    void emit_ready();
    void copy_rows(const std::uint8_t* rows, std::size_t stride, int count);

    const Kernels* kernels_;
    PixelRows* out_ = nullptr;
    Window window_{};
    bool has_lobes_ = false;
    bool is_copy_ = false;  // a crop without scaling: every output is a source pixel, by any filter
    int first_column_ = 0;
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
