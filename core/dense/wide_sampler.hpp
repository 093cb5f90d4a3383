// Resampling of pictures with any number of channels or with values wider than bytes, in double precision, with one
// code path for all instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/rows.hpp"
#include "dense/pixel_type.hpp"
#include "resample/kernels.hpp"
#include "resample/resampler.hpp"
#include "resample/taps.hpp"
#include "resample/target.hpp"
#include "view/placement.hpp"

namespace headrace {

inline constexpr int kMostChannels = 512;

// Conversion of values, per output channel. Source bytes and words are fractions of their type's maximum, floats are
// unchanged. A float of the batch is (fraction - subtract) / divide; an integer is the fraction of its own type's
// maximum, rounded.
struct WideFormat {
    std::vector<double> subtract, divide;
    std::vector<double> fill;  // fractions
};

// Conversion of channels from source to output.
enum class Channels : std::uint8_t {
    same,         // unchanged
    first,        // grey + alpha to grey
    luma,         // RGB or RGBA to grey: (19595 red + 38470 green + 7471 blue) / 65536, as for bytes
    color,        // RGBA to RGB
    grey_color,   // grey, with or without alpha, to RGB
    opaque,       // RGB to RGBA
    grey_opaque,  // grey to RGBA
    grey_alpha,   // grey + alpha to RGBA
};

class WideSampler final : public RowSink {
public:
    explicit WideSampler(const Kernels& kernels) : kernels_(&kernels) {}

    // The next rows are source rows `first_row`, first_row + 1, … of pixels with `channels` values, `step` values
    // apart, from column `first_column` on. They must cover reach_of(window, filter).
    struct Source {
        PixelType type;
        int channels, step;
        int first_row, first_column;
    };
    // `format` is the format of the batch's image at `at`; padding is written immediately.
    void start(const Format& format, const WideFormat& wide, std::uint8_t* at, const Placement& place);
    void begin(const Window& window, Filter filter, const Source& source, Channels channels);
    void take(const std::uint8_t* rows, std::size_t stride_bytes, int count) override;
    void finish();

private:
    struct Axis {
        std::vector<std::int32_t> start, count;
        std::vector<double> weight;
        int stride = 0;
    };
    static void set(Axis& axis, Filter filter, double from, double to, int low, int high, int outputs, bool reversed,
                    bool backward);
    void read(const std::uint8_t* row);
    void across();
    void store(int canvas_y, int x, int pixels, const double* values);

    const Kernels* kernels_;
    Format format_{};
    const WideFormat* wide_ = nullptr;
    std::uint8_t* at_ = nullptr;
    Placement place_{};
    Axis columns_, rows_;
    Source source_{};
    Channels channels_ = Channels::same;
    int width_ = 0, height_ = 0, next_row_ = 0, first_ = 0, last_ = 0, first_output_ = 0;
    std::vector<double> line_, resampled_, sums_;
    std::vector<float> floats_;
};

}  // namespace headrace
