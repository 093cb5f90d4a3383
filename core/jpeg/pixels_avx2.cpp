// Two blocks at a time, one in each half of a vector, and 32 pixels at a time, even and odd pixels separately. Compiled
// for AVX-512, with twice the registers, it is no faster.
#if defined(__x86_64__)

#include <immintrin.h>

#include "jpeg/pixels.hpp"

namespace headrace {

namespace {

using vec = __m256i;

vec load2(const void* low, const void* high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(low))),
                                   _mm_loadu_si128(static_cast<const __m128i*>(high)), 1);
}
vec load32(const std::uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const vec*>(from)); }
vec both(int first, int second) {
    return _mm256_set1_epi32(static_cast<int>(static_cast<unsigned>(second) << 16 | (first & 0xFFFF)));
}

// 32-bit lanes in two vectors: the lower and upper halves of 16-bit lanes.
struct Wide {
    vec low, high;
};
Wide pair(vec a, vec b) { return {_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)}; }
Wide times(const Wide& pairs, vec constants) {
    return {_mm256_madd_epi16(pairs.low, constants), _mm256_madd_epi16(pairs.high, constants)};
}
Wide operator+(const Wide& a, const Wide& b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
Wide operator-(const Wide& a, const Wide& b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
Wide scaled_up(vec a) {
    const Wide high = pair(_mm256_setzero_si256(), a);
    return {_mm256_srai_epi32(high.low, 16 - islow::kBits), _mm256_srai_epi32(high.high, 16 - islow::kBits)};
}
template <int kShift>
vec scaled_down(const Wide& a) {
    return _mm256_packs_epi32(_mm256_srai_epi32(a.low, kShift), _mm256_srai_epi32(a.high, kShift));
}

// Transforms eight values, one per vector, in each lane.
template <int kShift>
void transform8(vec v[8]) {
    using namespace islow;
    const Wide in26 = pair(v[2], v[6]);
    const Wide even2 = times(in26, both(k0_541, k0_541 - k1_847)), even3 = times(in26, both(k0_541 + k0_765, k0_541));
    const Wide round = {_mm256_set1_epi32(1 << (kShift - 1)), _mm256_set1_epi32(1 << (kShift - 1))};
    const Wide even0 = scaled_up(_mm256_add_epi16(v[0], v[4])) + round;
    const Wide even1 = scaled_up(_mm256_sub_epi16(v[0], v[4])) + round;
    const Wide z = pair(_mm256_add_epi16(v[7], v[3]), _mm256_add_epi16(v[5], v[1]));
    const Wide z3 = times(z, both(k1_175 - k1_961, k1_175)), z4 = times(z, both(k1_175, k1_175 - k0_390));
    const Wide in71 = pair(v[7], v[1]), in53 = pair(v[5], v[3]);
    const Wide odd[4] = {
        times(in71, both(-k0_899, k1_501 - k0_899)) + z4, times(in53, both(-k2_562, k3_072 - k2_562)) + z3,
        times(in53, both(k2_053 - k2_562, -k2_562)) + z4, times(in71, both(k0_298 - k0_899, -k0_899)) + z3};
    const Wide even[4] = {even0 + even3, even1 + even2, even1 - even2, even0 - even3};
    for (int i = 0; i < 4; ++i) {
        v[i] = scaled_down<kShift>(even[i] + odd[i]);
        v[7 - i] = scaled_down<kShift>(even[i] - odd[i]);
    }
}

// Transposes each half.
void transpose(vec v[8]) {
    vec a[8], b[8];
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm256_unpacklo_epi16(v[i], v[i + 4]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(v[i], v[i + 4]);
    }
    for (int i = 0; i < 4; ++i) {
        b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
        b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
    }
    for (int i = 0; i < 4; ++i) {
        v[2 * i] = _mm256_unpacklo_epi16(b[i], b[i + 4]);
        v[2 * i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
    }
}

// Converts columns of 16-bit values to rows of bytes: result r holds the rows 2r and 2r + 1 of each half.
void to_rows(const vec v[8], vec rows[4]) {
    const vec c02 = _mm256_packs_epi16(v[0], v[2]), c13 = _mm256_packs_epi16(v[1], v[3]);
    const vec c46 = _mm256_packs_epi16(v[4], v[6]), c57 = _mm256_packs_epi16(v[5], v[7]);
    const vec c01 = _mm256_unpacklo_epi8(c02, c13), c23 = _mm256_unpackhi_epi8(c02, c13);
    const vec c45 = _mm256_unpacklo_epi8(c46, c57), c67 = _mm256_unpackhi_epi8(c46, c57);
    const vec left_top = _mm256_unpacklo_epi16(c01, c23), left_bottom = _mm256_unpackhi_epi16(c01, c23);
    const vec right_top = _mm256_unpacklo_epi16(c45, c67), right_bottom = _mm256_unpackhi_epi16(c45, c67);
    rows[0] = _mm256_unpacklo_epi32(left_top, right_top);
    rows[1] = _mm256_unpackhi_epi32(left_top, right_top);
    rows[2] = _mm256_unpacklo_epi32(left_bottom, right_bottom);
    rows[3] = _mm256_unpackhi_epi32(left_bottom, right_bottom);
}

void store_rows(__m128i two_rows, const BlockJob& job, int row) {
    auto* out = job.out + static_cast<std::size_t>(row) * job.stride;
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), two_rows);
    _mm_storeh_pd(reinterpret_cast<double*>(out + job.stride), _mm_castsi128_pd(two_rows));
}

// Sets all bits of each half that is all zeros.
vec flat_halves(vec below_first) {
    const vec zero = _mm256_cmpeq_epi64(below_first, _mm256_setzero_si256());
    return _mm256_and_si256(zero, _mm256_permute4x64_epi64(zero, 0xB1));
}

// Column pass. If only a block's first row is non-zero, libjpeg-turbo shifts it without saturation.
void transform_columns(vec v[8], vec below_first) {
    const vec zero = _mm256_cmpeq_epi64(below_first, _mm256_setzero_si256());
    const auto mask = static_cast<unsigned>(_mm256_movemask_epi8(zero));
    const bool low = (mask & 0xFFFF) == 0xFFFF, high = mask >> 16 == 0xFFFF;
    const vec shifted = _mm256_slli_epi16(v[0], islow::kPass1Bits);
    if (!(low && high)) transform8<islow::kShift1>(v);
    if (!(low || high)) return;
    const vec flat = _mm256_set_epi64x(-high, -high, -low, -low);
    for (int i = 0; i < 8; ++i) v[i] = _mm256_blendv_epi8(v[i], shifted, flat);
}

void transform_two(const BlockJob& a, const BlockJob& b) {
    vec v[8];
    vec below_first = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
        const vec row = load2(a.coefficients + 8 * i, b.coefficients + 8 * i);
        if (i > 0) below_first = _mm256_or_si256(below_first, row);
        v[i] = _mm256_mullo_epi16(row, load2(a.quantisers + 8 * i, b.quantisers + 8 * i));
    }
    transform_columns(v, below_first);
    transpose(v);
    transform8<islow::kShift2>(v);
    vec rows[4];
    to_rows(v, rows);
    for (int i = 0; i < 4; ++i) {
        const vec bytes = _mm256_xor_si256(rows[i], _mm256_set1_epi8(-128));
        store_rows(_mm256_castsi256_si128(bytes), a, 2 * i);
        store_rows(_mm256_extracti128_si256(bytes, 1), b, 2 * i);
    }
}

void transform(const BlockJob* jobs, int count) {
    for (int i = 0; i + 1 < count; i += 2) transform_two(jobs[i], jobs[i + 1]);
    if (count % 2 == 1) transform_two(jobs[count - 1], jobs[count - 1]);
}

// Transforms eight values, one per vector, to the first four; the fifth is ignored.
template <int kShift>
void halve8(vec v[8]) {
    using namespace islow;
    const Wide round = {_mm256_set1_epi32(1 << (kShift - 1)), _mm256_set1_epi32(1 << (kShift - 1))};
    const Wide high = pair(_mm256_setzero_si256(), v[0]);
    const Wide even0 = Wide{_mm256_srai_epi32(high.low, 15 - kBits), _mm256_srai_epi32(high.high, 15 - kBits)} + round;
    const Wide even2 = times(pair(v[2], v[6]), both(k1_847, -k0_765));
    const Wide in75 = pair(v[7], v[5]), in31 = pair(v[3], v[1]);
    const Wide outer = times(in75, both(-k0_509, -k0_601)) + times(in31, both(k0_899, k2_562));
    const Wide inner = times(in75, both(-k0_211, k1_451)) + times(in31, both(-k2_172, k1_061));
    v[0] = scaled_down<kShift>(even0 + even2 + outer);
    v[3] = scaled_down<kShift>(even0 + even2 - outer);
    v[1] = scaled_down<kShift>(even0 - even2 + inner);
    v[2] = scaled_down<kShift>(even0 - even2 - inner);
}

void store_four(__m128i rows, const BlockJob& job) {
    alignas(16) std::uint8_t bytes[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(bytes), rows);
    for (int y = 0; y < 4; ++y) __builtin_memcpy(job.out + static_cast<std::size_t>(y) * job.stride, bytes + 4 * y, 4);
}

void halve_two(const BlockJob& a, const BlockJob& b) {
    vec v[8];
    vec below_first = _mm256_setzero_si256();
    for (const int i : {0, 1, 2, 3, 5, 6, 7}) {
        const vec row = load2(a.coefficients + 8 * i, b.coefficients + 8 * i);
        if (i > 0) below_first = _mm256_or_si256(below_first, row);
        v[i] = _mm256_mullo_epi16(row, load2(a.quantisers + 8 * i, b.quantisers + 8 * i));
    }
    const vec shifted = _mm256_slli_epi16(v[0], islow::kPass1Bits);
    const vec flat = flat_halves(below_first);
    halve8<islow::kShift1 + 1>(v);
    for (int i = 0; i < 4; ++i) v[i] = _mm256_blendv_epi8(v[i], shifted, flat);
    for (int i = 4; i < 8; ++i) v[i] = _mm256_setzero_si256();
    transpose(v);
    halve8<islow::kShift2 + 1>(v);
    const vec c02 = _mm256_packs_epi16(v[0], v[2]), c13 = _mm256_packs_epi16(v[1], v[3]);
    const vec left = _mm256_unpacklo_epi8(c02, c13), right = _mm256_unpackhi_epi8(c02, c13);
    const vec bytes = _mm256_xor_si256(_mm256_unpacklo_epi16(left, right), _mm256_set1_epi8(-128));
    store_four(_mm256_castsi256_si128(bytes), a);
    store_four(_mm256_extracti128_si256(bytes, 1), b);
}

void transform_half(const BlockJob* jobs, int count) {
    for (int i = 0; i + 1 < count; i += 2) halve_two(jobs[i], jobs[i + 1]);
    if (count % 2 == 1) halve_two(jobs[count - 1], jobs[count - 1]);
}

// Even and odd pixels of 32 pixels, in 16-bit lanes.
struct Halves {
    vec even, odd;
};
Halves halves(const std::uint8_t* from) {
    const vec bytes = load32(from);
    return {_mm256_and_si256(bytes, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(bytes, 8)};
}
vec load16(const std::uint8_t* from) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
// 3 * near + far
vec weigh(vec near, vec far) { return _mm256_add_epi16(_mm256_add_epi16(near, far), _mm256_slli_epi16(near, 1)); }
vec sum(vec a, vec b, int constant) {
    return _mm256_add_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(static_cast<short>(constant)));
}
vec triple(vec a) { return _mm256_add_epi16(a, _mm256_slli_epi16(a, 1)); }

// Chroma of the pixels x to x + 31, x a multiple of 32; see chroma_at() of the scalar twin.
template <Sampling S>
Halves chroma_at(const std::uint8_t* near, const std::uint8_t* far, int x, int odd) {
    if constexpr (S == Sampling::h1v1) return halves(near + x);
    if constexpr (S == Sampling::h2v1) {
        const std::uint8_t* at = near + x / 2;
        const vec here = triple(load16(at));
        return {_mm256_srli_epi16(sum(here, load16(at - 1), 1), 2), _mm256_srli_epi16(sum(here, load16(at + 1), 2), 2)};
    }
    if constexpr (S == Sampling::h1v2) {
        const Halves n = halves(near + x), f = halves(far + x);
        return {_mm256_srli_epi16(sum(triple(n.even), f.even, 1 + odd), 2),
                _mm256_srli_epi16(sum(triple(n.odd), f.odd, 1 + odd), 2)};
    }
    if constexpr (S == Sampling::h2v2) {
        const std::uint8_t *n = near + x / 2, *f = far + x / 2;
        const vec here = triple(weigh(load16(n), load16(f)));
        const vec before = weigh(load16(n - 1), load16(f - 1)), after = weigh(load16(n + 1), load16(f + 1));
        return {_mm256_srli_epi16(sum(here, before, 8), 4), _mm256_srli_epi16(sum(here, after, 7), 4)};
    }
}

// 16 pixels, as bytes R G and B X of each pixel.
struct Coloured {
    vec rg, bx;
};

// Interleaves red and green, or blue and 255, per pixel.
vec interleave(vec first, vec second) {
    const vec order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    return _mm256_shuffle_epi8(_mm256_packus_epi16(first, second), order);
}

// value * part / 2^16, rounded, in 16-bit lanes; |value| <= 128.
vec fraction(vec value, int part) {
    const vec doubled = _mm256_mulhi_epi16(_mm256_slli_epi16(value, 1), _mm256_set1_epi16(static_cast<short>(part)));
    return _mm256_srai_epi16(_mm256_add_epi16(doubled, _mm256_set1_epi16(1)), 1);
}

// Constants beyond 16 bits are split into an integer and the rest, like in jdcolext-avx2.asm.
Coloured colour_of(vec y, vec cb, vec cr) {
    using namespace colour;
    constexpr int kOne = 1 << 16;
    cb = _mm256_sub_epi16(cb, _mm256_set1_epi16(128));
    cr = _mm256_sub_epi16(cr, _mm256_set1_epi16(128));
    const vec r = _mm256_add_epi16(_mm256_add_epi16(y, cr), fraction(cr, k1_402 - kOne));
    const vec b = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_slli_epi16(cb, 1)), fraction(cb, k1_772 - 2 * kOne));
    const vec half = _mm256_set1_epi32(1 << 15);
    const Wide g = times(pair(cb, cr), both(-k0_344, kOne - k0_714)) + Wide{half, half};
    const vec green = _mm256_add_epi16(_mm256_sub_epi16(y, cr), scaled_down<16>(g));
    return {interleave(r, green), interleave(b, _mm256_set1_epi16(255))};
}

void store32(std::uint8_t* out, const Coloured& even, const Coloured& odd) {
    const Wide e = pair(even.rg, even.bx), o = pair(odd.rg, odd.bx);
    const vec p0 = _mm256_unpacklo_epi32(e.low, o.low), p4 = _mm256_unpackhi_epi32(e.low, o.low);
    const vec p8 = _mm256_unpacklo_epi32(e.high, o.high), p12 = _mm256_unpackhi_epi32(e.high, o.high);
    auto* to = reinterpret_cast<vec*>(out);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(p0, p4, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(p8, p12, 0x20));
    _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(p0, p4, 0x31));
    _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(p8, p12, 0x31));
}

template <Sampling S>
void convert(const PixelRow& row) {
    for (int x = 0; x < row.count; x += 32) {
        const Halves y = halves(row.luma + x);
        if constexpr (S == Sampling::grey) {
            const vec full = _mm256_set1_epi16(255);
            store32(row.out + 4 * x, {interleave(y.even, y.even), interleave(y.even, full)},
                    {interleave(y.odd, y.odd), interleave(y.odd, full)});
        } else {
            const Halves cb = chroma_at<S>(row.cb, row.cb_far, x, row.odd);
            const Halves cr = chroma_at<S>(row.cr, row.cr_far, x, row.odd);
            store32(row.out + 4 * x, colour_of(y.even, cb.even, cr.even), colour_of(y.odd, cb.odd, cr.odd));
        }
    }
}

}  // namespace

const PixelKernels pixels_avx2 = {transform,
                                  transform_half,
                                  {convert<Sampling::grey>, convert<Sampling::h1v1>, convert<Sampling::h2v1>,
                                   convert<Sampling::h1v2>, convert<Sampling::h2v2>}};

}  // namespace headrace

#endif
