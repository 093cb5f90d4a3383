// Pictures of any number of channels and of values that bytes do not hold: resampled in double precision, one path for
// all instruction sets.
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

// What a value of the source becomes, by channel of the output. Bytes and words count as shares of the largest that
// their type holds, floats as they are. A float of the batch is (share - subtract) / divide; a whole number is the
// share of its own type's largest, rounded.
struct WideFormat {
    std::vector<double> subtract, divide;
    std::vector<double> fill;  // shares
};

// Where a channel of the output comes from.
enum class Channels : std::uint8_t {
    same,         // as many as the source has
    first,        // grey + alpha to grey
    luma,         // RGB or RGBA to grey: (19595 red + 38470 green + 7471 blue) / 65536, as bytes have it
    color,        // RGBA to RGB
    grey_color,   // grey, with alpha or not, to RGB
    opaque,       // RGB to RGBA
    grey_opaque,  // grey to RGBA
    grey_alpha,   // grey + alpha to RGBA
};

class WideSampler final : public RowSink {
public:
    explicit WideSampler(const Kernels& kernels) : kernels_(&kernels) {}

    // Rows taken from now on are source rows `first_row`, first_row + 1, … of whole pixels of `channels` values, each
    // `step` values after the one before, from column `first_column` on. They must cover reach_of(window, filter).
    struct Source {
        PixelType type;
        int channels, step;
        int first_row, first_column;
    };
    // `format` as of the batch's image, which lies at `at`; padding is written at once.
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
    static void set(Axis& axis, Filter filter, double from, double to, int low, int high, int outputs, bool reversed);
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
