#include "augment/mixing.hpp"

#include <algorithm>
#include <vector>

#include "resample/kernels.hpp"

#define HEADRACE_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define HEADRACE_AVX2 __attribute__((target("avx2")))
#endif

namespace headrace {
namespace {

constexpr float kShare = 1.0f / kMixOne;

// Loops that compilers vectorize, once per instruction set: they are inlined into the functions of each.

// a = b + round((a - b) w) compiles to pmulhrsw, one instruction for 16 values.
HEADRACE_INLINE void blend(std::uint8_t* __restrict a, std::uint8_t* __restrict b, std::size_t count, int weight) {
    const auto w = static_cast<std::int16_t>(weight);
    for (std::size_t i = 0; i < count; ++i) {
        const auto apart = static_cast<std::int16_t>(a[i] - b[i]), back = static_cast<std::int16_t>(b[i] - a[i]);
        const auto to_a = static_cast<std::int16_t>(((apart * w >> 14) + 1) >> 1);
        const auto to_b = static_cast<std::int16_t>(((back * w >> 14) + 1) >> 1);
        const std::uint8_t own = a[i];
        a[i] = static_cast<std::uint8_t>(b[i] + to_a);
        b[i] = static_cast<std::uint8_t>(own + to_b);
    }
}

HEADRACE_INLINE void blend(float* __restrict a, float* __restrict b, std::size_t count, int weight) {
    const float w = weight * kShare, rest = 1 - w;
    for (std::size_t i = 0; i < count; ++i) {
        const float own = a[i], other = b[i];
        a[i] = own * w + other * rest;
        b[i] = other * w + own * rest;
    }
}

struct Rows {
    const std::uint8_t *a, *b;
    float *to_a, *to_b;
};

HEADRACE_INLINE void blend_row(const Rows& rows, std::size_t count, int weight, const float* __restrict subtract,
                               const float* __restrict divide) {
    const std::uint8_t* __restrict a = rows.a, * __restrict b = rows.b;
    float* __restrict to_a = rows.to_a, * __restrict to_b = rows.to_b;
    const float w = weight * kShare, rest = 1 - w;
    for (std::size_t i = 0; i < count; ++i) {
        const float own = a[i], other = b[i];
        to_a[i] = (own * w + other * rest - subtract[i]) / divide[i];
        to_b[i] = (other * w + own * rest - subtract[i]) / divide[i];
    }
}

struct Loops {
    void (*bytes)(std::uint8_t*, std::uint8_t*, std::size_t, int);
    void (*floats)(float*, float*, std::size_t, int);
    void (*row)(const Rows&, std::size_t, int, const float*, const float*);
};

template <class T>
void blend_plain(T* a, T* b, std::size_t count, int weight) {
    blend(a, b, count, weight);
}
void blend_row_plain(const Rows& rows, std::size_t count, int weight, const float* subtract, const float* divide) {
    blend_row(rows, count, weight, subtract, divide);
}
#ifdef HEADRACE_AVX2
template <class T>
HEADRACE_AVX2 void blend_avx2(T* a, T* b, std::size_t count, int weight) {
    blend(a, b, count, weight);
}
HEADRACE_AVX2 void blend_row_avx2(const Rows& rows, std::size_t count, int weight, const float* subtract,
                                  const float* divide) {
    blend_row(rows, count, weight, subtract, divide);
}
#endif

Loops loops_of([[maybe_unused]] Level level) {
#ifdef HEADRACE_AVX2
    if (level >= Level::avx2) return {blend_avx2<std::uint8_t>, blend_avx2<float>, blend_row_avx2};
#endif
    return {blend_plain<std::uint8_t>, blend_plain<float>, blend_row_plain};
}

template <class T>
void swap_box(T* a, T* b, const MixShape& shape, const PairMix& pair) {
    const std::size_t first = static_cast<std::size_t>(pair.left) * shape.values;
    const std::size_t count = static_cast<std::size_t>(pair.right - pair.left) * shape.values;
    for (int plane = 0; plane < shape.planes; ++plane) {
        for (int y = pair.top; y < pair.bottom; ++y) {
            const std::size_t at = (static_cast<std::size_t>(plane) * shape.height + y) * shape.row() + first;
            std::swap_ranges(a + at, a + at + count, b + at);
        }
    }
}

template <class T>
void mix_pair(T* a, const MixShape& shape, const PairMix& pair, void (*blend_values)(T*, T*, std::size_t, int)) {
    T* const b = a + shape.image();
    if (pair.blends()) blend_values(a, b, shape.image(), pair.weight);
    if (pair.swaps()) swap_box(a, b, shape, pair);
}

// Repeats the channels' numbers for each value of a row, per plane.
std::vector<float> spread(std::span<const float> channels, const MixShape& shape) {
    std::vector<float> numbers;
    numbers.reserve(shape.planes * std::max<std::size_t>(shape.row(), kPeriod));
    for (int plane = 0; plane < shape.planes; ++plane) {
        for (std::size_t i = 0; i < std::max<std::size_t>(shape.row(), kPeriod); ++i) {
            numbers.push_back(channels[plane * shape.values + i % shape.values]);
        }
    }
    return numbers;
}

// Writer of rows of floats in any type.
class FloatRows {
public:
    FloatRows(const MixShape& shape, std::span<const float> subtract, std::span<const float> divide, DType dtype,
              Level level)
        : shape_(shape),
          subtract_(spread(subtract, shape)),
          divide_(spread(divide, shape)),
          dtype_(dtype),
          kernels_(kernels(level)),
          loops_(loops_of(level)),
          floats_(2 * shape.row()) {}

    void convert(const std::uint8_t* image, std::uint8_t* out) {
        for (std::size_t row = 0; row < rows(); ++row) {
            float* const to = floats_at(out, row, 0);
            kernels_.to_float(image + row * shape_.row(), count(), subtract(row), divide(row), to);
            store(to, out, row);
        }
    }

    void blend(const std::uint8_t* a, int weight, std::uint8_t* out) {
        const std::uint8_t* const b = a + shape_.image();
        std::uint8_t* const out_b = out + shape_.image() * size_of(dtype_);
        for (std::size_t row = 0; row < rows(); ++row) {
            const std::size_t at = row * shape_.row();
            float *const to_a = floats_at(out, row, 0), *const to_b = floats_at(out_b, row, 1);
            loops_.row({a + at, b + at, to_a, to_b}, shape_.row(), weight, subtract(row), divide(row));
            store(to_a, out, row);
            store(to_b, out_b, row);
        }
    }

private:
    std::size_t rows() const { return static_cast<std::size_t>(shape_.planes) * shape_.height; }
    int count() const { return static_cast<int>(shape_.row()); }
    const float* subtract(std::size_t row) const { return subtract_.data() + constants(row); }
    const float* divide(std::size_t row) const { return divide_.data() + constants(row); }
    std::size_t constants(std::size_t row) const {
        return row / shape_.height * std::max<std::size_t>(shape_.row(), kPeriod);
    }
    std::uint8_t* place(std::uint8_t* out, std::size_t row) const { return out + row * shape_.row() * size_of(dtype_); }
    float* floats_at(std::uint8_t* out, std::size_t row, int which) {
        if (dtype_ == DType::float32) return reinterpret_cast<float*>(place(out, row));
        return floats_.data() + which * shape_.row();
    }
    void store(const float* values, std::uint8_t* out, std::size_t row) {
        store_floats(kernels_, dtype_, values, count(), place(out, row));
    }

    const MixShape shape_;
    const std::vector<float> subtract_, divide_;
    const DType dtype_;
    const Kernels& kernels_;
    const Loops loops_;
    std::vector<float> floats_;  // two rows, for conversion to 16-bit types
};

}  // namespace

void mix(std::uint8_t* images, const MixShape& shape, std::span<const PairMix> pairs, Level level) {
    const Loops loops = loops_of(level);
    for (std::size_t k = 0; k < pairs.size(); ++k)
        mix_pair(images + 2 * k * shape.image(), shape, pairs[k], loops.bytes);
}

void mix(float* images, const MixShape& shape, std::span<const PairMix> pairs, Level level) {
    const Loops loops = loops_of(level);
    for (std::size_t k = 0; k < pairs.size(); ++k)
        mix_pair(images + 2 * k * shape.image(), shape, pairs[k], loops.floats);
}

void mix_to_floats(std::uint8_t* images, std::size_t count, const MixShape& shape, std::span<const PairMix> pairs,
                   std::span<const float> subtract, std::span<const float> divide, DType dtype, std::uint8_t* out,
                   Level level) {
    FloatRows rows(shape, subtract, divide, dtype, level);
    const std::size_t bytes = shape.image() * size_of(dtype);
    for (std::size_t k = 0; k < pairs.size(); ++k) {
        std::uint8_t* const image = images + 2 * k * shape.image();
        if (pairs[k].swaps()) swap_box(image, image + shape.image(), shape, pairs[k]);
        if (pairs[k].blends()) {
            rows.blend(image, pairs[k].weight, out + 2 * k * bytes);
        } else {
            rows.convert(image, out + 2 * k * bytes);
            rows.convert(image + shape.image(), out + (2 * k + 1) * bytes);
        }
    }
    for (std::size_t i = 2 * pairs.size(); i < count; ++i) rows.convert(images + i * shape.image(), out + i * bytes);
}

}  // namespace headrace
