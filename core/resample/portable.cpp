// Resampling passes for CPUs without a specific level, in vectors that compile to NEON on aarch64 and SSE2 on x86-64.
// Only 16-bit products are available on all of them, so a weight is split into parts with products with a byte that
// fit.
#include "common/vectors.hpp"
#include "resample/levels.hpp"

namespace headrace::portable {

namespace {

// Weights of a chunk for one output, of pixels 0 and 1 and of 2 and 3, each repeated for the pixel's four channels:
// weight = 128 * high + low.
struct Weights {
    u16x8 high[2], low[2];

    Weights() = default;
    explicit Weights(const std::int16_t* weight) {
        for (int pair = 0; pair < 2; ++pair, weight += 2) {
            const auto a = static_cast<std::uint16_t>(weight[0]), b = static_cast<std::uint16_t>(weight[1]);
            const u16x8 both = {a, a, a, a, b, b, b, b};
            high[pair] = as<u16x8>(as<i16x8>(both) >> 7);
            low[pair] = both & 127;
        }
    }
};

// Sum of bytes times weights plus a start value, as 128 * high + low; two partial sums of RGBX. The high sum may be
// negative or overflow 16 bits in between: its final value fits, and the overflow cancels. Each chunk adds two products
// of at most 255 * 127 to a lane of the low sum, which fits because its excess over 127 is carried first.
class Sum {
public:
    explicit Sum(std::int32_t start) {
        for (int channel = 0; channel < 4; ++channel) {
            high_[channel] = static_cast<std::uint16_t>(start >> 7);
            low_[channel] = static_cast<std::uint16_t>(start & 127);
        }
    }

    void add(const std::uint8_t* four_pixels, const Weights& weights) {
        const u8x16 bytes = load<u8x16>(four_pixels);
        const u16x8 first = low_bytes(bytes), second = high_bytes(bytes);
        low_ += first * weights.low[0] + second * weights.low[1];
        high_ += first * weights.high[0] + second * weights.high[1] + (low_ >> 7);
        low_ &= 127;
    }

    // Returns two sums of RGBX in Q7.
    static u16x8 finished(const Sum& a, const Sum& b) { return added(a.high_, b.high_) + (added(a.low_, b.low_) >> 7); }

private:
    // Adds the two halves of each vector.
    static u16x8 added(u16x8 a, u16x8 b) {
        const u8x16 x = as<u8x16>(a), y = as<u8x16>(b);
        return as<u16x8>(interleave<8>(x, y)) + as<u16x8>(interleave_high<8>(x, y));
    }

    u16x8 high_ = {}, low_ = {};
};

// Maximum chunks: more weights would need too much stack.
constexpr int kMostChunks = 32;

// Computes two outputs at a time over all rows of the band. A constant Chunks keeps the weights in registers.
template <int Chunks>
void outputs(const std::uint8_t* rows, std::size_t stride, int count, const PackedTaps& taps,
             std::int16_t* const* out) {
    const int chunks = Chunks > 0 ? Chunks : taps.chunks;
    const Sum start(taps.start_sum);
    Weights weights[2][Chunks > 0 ? Chunks : kMostChunks];
    for (int i = 0; i < 4 * taps.groups; i += 2) {
        const std::int16_t* weight = taps.weight + (static_cast<std::size_t>(i / 4) * chunks * 4 + i % 4) * 4;
        for (int c = 0; c < chunks; ++c, weight += 16) {
            weights[0][c] = Weights(weight);
            weights[1][c] = Weights(weight + 4);
        }
        const std::uint8_t* first = rows + 4 * static_cast<std::ptrdiff_t>(taps.start[i]);
        const std::uint8_t* second = rows + 4 * static_cast<std::ptrdiff_t>(taps.start[i + 1]);
        for (int r = 0; r < count; ++r, first += stride, second += stride) {
            Sum a = start, b = start;
            for (int c = 0; c < chunks; ++c) {
                a.add(first + 16 * c, weights[0][c]);
                b.add(second + 16 * c, weights[1][c]);
            }
            store(out[r] + 4 * i, Sum::finished(a, b));
        }
    }
}

// row * weight / 2^15, rounded, for lanes below 2^15: with both split into bytes, each product fits 16 bits.
struct RowWeight {
    std::uint16_t high, low;

    explicit RowWeight(std::int16_t weight)
        : high(static_cast<std::uint16_t>(weight >> 8)), low(static_cast<std::uint16_t>(weight & 255)) {}

    u16x8 operator*(u16x8 row) const {
        const u16x8 row_high = row >> 8, row_low = row & 255;
        const u16x8 middle = row_high * low + row_low * high + (row_low * low >> 8);  // row * weight / 2^8
        return ((row_high * high) << 1) + ((middle + 64) >> 7);
    }
};

}  // namespace

void horizontal(const std::uint8_t* rows, std::size_t stride, int count, const PackedTaps& taps,
                std::int16_t* const* out) {
    if (taps.chunks > kMostChunks) return scalar::horizontal(rows, stride, count, taps, out);
    switch (taps.chunks) {
        case 1:
            return outputs<1>(rows, stride, count, taps, out);
        case 2:
            return outputs<2>(rows, stride, count, taps, out);
        case 3:
            return outputs<3>(rows, stride, count, taps, out);
        default:
            return outputs<0>(rows, stride, count, taps, out);
    }
}

// No sum overflows 16 bits: weights total at most 2^15, and the number of taps is limited so that rounding errors stay
// below half a level.
void vertical(const std::int16_t* const* rows, const std::int16_t* weight, int taps, int values, std::uint8_t* out) {
    for (int x = 0; x < values; x += 32) {
        u16x8 sum[4];
        for (u16x8& v : sum) v = u16x8{} + 64;
        for (int k = 0; k < taps; ++k) {
            const RowWeight by(weight[k]);
            for (int i = 0; i < 4; ++i) sum[i] += by * load<u16x8>(rows[k] + x + 8 * i);
        }
        store(out + x, bytes_of(sum[0] >> 7, sum[1] >> 7));
        store(out + x + 16, bytes_of(sum[2] >> 7, sum[3] >> 7));
    }
}

}  // namespace headrace::portable
