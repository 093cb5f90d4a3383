#include <algorithm>

#include "jpeg/pixels.hpp"

namespace headrace {

namespace {

using i16 = std::int16_t;
using i32 = std::int32_t;
using u32 = std::uint32_t;

// Emulates libjpeg-turbo's vector lanes: 32-bit products fit for any input, sums wrap, and results saturate to 16 bits.
i16 wrap(i32 value) { return static_cast<i16>(value); }
i16 scale_down(u32 value, int shift) {
    return static_cast<i16>(std::clamp(static_cast<i32>(value + (1U << (shift - 1))) >> shift, -32768, 32767));
}

// Transforms eight values, `step` apart, in place.
void transform8(i16* v, int step, int shift) {
    using namespace islow;
    const i32 in1 = v[step], in2 = v[2 * step], in3 = v[3 * step], in5 = v[5 * step], in6 = v[6 * step],
              in7 = v[7 * step];
    const i32 even2 = in2 * k0_541 + in6 * (k0_541 - k1_847);
    const i32 even3 = in2 * (k0_541 + k0_765) + in6 * k0_541;
    const i32 even0 = wrap(v[0] + v[4 * step]) * (1 << kBits), even1 = wrap(v[0] - v[4 * step]) * (1 << kBits);
    const i32 e[4] = {even0 + even3, even1 + even2, even1 - even2, even0 - even3};
    const i32 z3 = wrap(in7 + in3), z4 = wrap(in5 + in1);
    const i32 odd3 = z3 * (k1_175 - k1_961) + z4 * k1_175, odd4 = z3 * k1_175 + z4 * (k1_175 - k0_390);
    const i32 o[4] = {
        in7 * -k0_899 + in1 * (k1_501 - k0_899) + odd4,
        in5 * -k2_562 + in3 * (k3_072 - k2_562) + odd3,
        in5 * (k2_053 - k2_562) + in3 * -k2_562 + odd4,
        in7 * (k0_298 - k0_899) + in1 * -k0_899 + odd3,
    };
    for (int i = 0; i < 4; ++i) {
        v[i * step] = scale_down(static_cast<u32>(e[i]) + static_cast<u32>(o[i]), shift);
        v[(7 - i) * step] = scale_down(static_cast<u32>(e[i]) - static_cast<u32>(o[i]), shift);
    }
}

void transform_block(const BlockJob& job) {
    i16 v[64];
    bool flat = true;  // only the first row is non-zero: libjpeg-turbo then shifts without saturation
    for (int i = 0; i < 64; ++i) {
        v[i] = wrap(job.coefficients[i] * static_cast<i16>(job.quantisers[i]));
        flat = flat && (i < 8 || job.coefficients[i] == 0);
    }
    for (int x = 0; x < 8; ++x) {
        if (!flat) {
            transform8(v + x, 8, islow::kShift1);
        } else {
            std::fill_n(&v[x], 1, wrap(v[x] * (1 << islow::kPass1Bits)));
            for (int y = 1; y < 8; ++y) v[8 * y + x] = v[x];
        }
    }
    for (int y = 0; y < 8; ++y) {
        transform8(v + 8 * y, 1, islow::kShift2);
        for (int x = 0; x < 8; ++x) {
            job.out[y * job.stride + x] = static_cast<std::uint8_t>(std::clamp<int>(v[8 * y + x], -128, 127) + 128);
        }
    }
}

void transform(const BlockJob* jobs, int count) {
    for (int i = 0; i < count; ++i) transform_block(jobs[i]);
}

// Transforms eight values, `step` apart, to the first four; the fifth is ignored.
void halve8(i16* v, int step, int shift) {
    using namespace islow;
    const i32 in1 = v[step], in3 = v[3 * step], in5 = v[5 * step], in7 = v[7 * step];
    const u32 even0 = static_cast<u32>(v[0] * (1 << (kBits + 1)));
    const u32 even2 = static_cast<u32>(v[2 * step] * k1_847 - v[6 * step] * k0_765);
    const u32 outer = static_cast<u32>(in7 * -k0_509 + in5 * -k0_601 + in3 * k0_899 + in1 * k2_562);
    const u32 inner = static_cast<u32>(in7 * -k0_211 + in5 * k1_451 + in3 * -k2_172 + in1 * k1_061);
    v[0] = scale_down(even0 + even2 + outer, shift);
    v[3 * step] = scale_down(even0 + even2 - outer, shift);
    v[step] = scale_down(even0 - even2 + inner, shift);
    v[2 * step] = scale_down(even0 - even2 - inner, shift);
}

void halve_block(const BlockJob& job) {
    i16 v[64];
    bool flat = true;
    for (int i = 0; i < 64; ++i) {
        v[i] = wrap(job.coefficients[i] * static_cast<i16>(job.quantisers[i]));
        flat = flat && (i < 8 || i / 8 == 4 || job.coefficients[i] == 0);
    }
    for (int x = 0; x < 8; ++x) {
        if (!flat) {
            halve8(v + x, 8, islow::kShift1 + 1);
        } else {
            const i16 value = wrap(v[x] * (1 << islow::kPass1Bits));
            for (int y = 0; y < 4; ++y) v[8 * y + x] = value;
        }
    }
    for (int y = 0; y < 4; ++y) {
        halve8(v + 8 * y, 1, islow::kShift2 + 1);
        for (int x = 0; x < 4; ++x) {
            job.out[y * job.stride + x] = static_cast<std::uint8_t>(std::clamp<int>(v[8 * y + x], -128, 127) + 128);
        }
    }
}

void transform_half(const BlockJob* jobs, int count) {
    for (int i = 0; i < count; ++i) halve_block(jobs[i]);
}

// Triangle filter of jdsample.c: three parts of the nearer sample and one of the farther, rounded up and down
// alternately to preserve brightness.
template <Sampling S>
int chroma_at(const std::uint8_t* near, const std::uint8_t* far, int x, int odd) {
    const int at = across(S) == 2 ? x / 2 : x;
    const int beside = x % 2 ? at + 1 : at - 1;
    if constexpr (S == Sampling::h1v1) return near[at];
    if constexpr (S == Sampling::h2v1) return (3 * near[at] + near[beside] + 1 + x % 2) >> 2;
    if constexpr (S == Sampling::h1v2) return (3 * near[at] + far[at] + 1 + odd) >> 2;
    if constexpr (S == Sampling::h2v2) {
        return (3 * (3 * near[at] + far[at]) + 3 * near[beside] + far[beside] + 8 - x % 2) >> 4;
    }
}

std::uint8_t to_byte(int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

void put(std::uint8_t* out, int r, int g, int b) {
    out[0] = to_byte(r);
    out[1] = to_byte(g);
    out[2] = to_byte(b);
    out[3] = 255;
}

template <Sampling S>
void convert(const PixelRow& row) {
    using namespace colour;
    constexpr int kHalf = 1 << 15;
    for (int x = 0; x < row.count; ++x) {
        const int y = row.luma[x];
        if constexpr (S == Sampling::grey) {
            put(row.out + 4 * x, y, y, y);
        } else {
            const int cb = chroma_at<S>(row.cb, row.cb_far, x, row.odd) - 128;
            const int cr = chroma_at<S>(row.cr, row.cr_far, x, row.odd) - 128;
            put(row.out + 4 * x, y + ((k1_402 * cr + kHalf) >> 16), y + ((-k0_344 * cb - k0_714 * cr + kHalf) >> 16),
                y + ((k1_772 * cb + kHalf) >> 16));
        }
    }
}

}  // namespace

const PixelKernels pixels_scalar = {transform,
                                    transform_half,
                                    {convert<Sampling::grey>, convert<Sampling::h1v1>, convert<Sampling::h2v1>,
                                     convert<Sampling::h1v2>, convert<Sampling::h2v2>}};

}  // namespace headrace
