// AVX-512 with byte permutes and dot products of bytes (VBMI and VNNI; Ice Lake, Zen 4 and later): 64 bytes at a time.
// The other kernels are the common source, vectorized by the compiler. Vectors that extend past the end are masked.
#if defined(__x86_64__)
#include <immintrin.h>

#include "augment/augment_kernels_of.hpp"
#include "augment/warp_kernels.hpp"

namespace headrace {
namespace {
#include "augment/augment_kernels.inl"
#include "augment/blur_words.inl"
#include "augment/warp_kernels.inl"

// Applies `make` to `bytes` in vectors of 64 bytes, the last one under a mask.
template <class Make>
inline void each_vector(std::uint8_t* bytes, std::size_t size, Make make) {
    std::size_t i = 0;
    for (; i + 64 <= size; i += 64) _mm512_storeu_si512(bytes + i, make(_mm512_loadu_si512(bytes + i)));
    if (i == size) return;
    const __mmask64 rest = (std::uint64_t{1} << (size - i)) - 1;
    _mm512_mask_storeu_epi8(bytes + i, rest, make(_mm512_maskz_loadu_epi8(rest, bytes + i)));
}

// Table of 256 bytes, with lookup by a permute of each half.
struct Table {
    __m512i a, b, c, d;

    explicit Table(const std::uint8_t* bytes)
        : a(_mm512_loadu_si512(bytes)),
          b(_mm512_loadu_si512(bytes + 64)),
          c(_mm512_loadu_si512(bytes + 128)),
          d(_mm512_loadu_si512(bytes + 192)) {}

    __m512i of(__m512i at) const {
        const __m512i low = _mm512_permutex2var_epi8(a, at, b), high = _mm512_permutex2var_epi8(c, at, d);
        return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(at), high);
    }
};

void by_table(std::uint8_t* bytes, std::size_t size, const std::uint8_t* values) {
    const Table table(values);
    each_vector(bytes, size, [&](__m512i v) { return table.of(v); });
}

void brightness_by_table(std::uint8_t* bytes, std::size_t count, float factor) {
    alignas(64) std::uint8_t table[256];
    for (int i = 0; i < 256; ++i) table[i] = static_cast<std::uint8_t>(to_byte(static_cast<float>(i) * factor));
    by_table(bytes, 4 * count, table);
}

void contrast_by_table(std::uint8_t* bytes, std::size_t count, float factor, float mean) {
    alignas(64) std::uint8_t table[256];
    const float other = mean * (1.0F - factor);
    for (int i = 0; i < 256; ++i) table[i] = static_cast<std::uint8_t>(to_byte(static_cast<float>(i) * factor + other));
    by_table(bytes, 4 * count, table);
}

void lookup_by_permutes(std::uint8_t* bytes, std::size_t count, const std::uint8_t* tables) {
    if (std::memcmp(tables, tables + 256, 256) == 0 && std::memcmp(tables, tables + 512, 256) == 0)
        return by_table(bytes, 4 * count, tables);
    const Table red(tables), green(tables + 256), blue(tables + 512);
    constexpr __mmask64 kGreen = 0x2222222222222222, kBlue = 0x4444444444444444;
    each_vector(bytes, 4 * count, [&](__m512i v) {
        return _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(red.of(v), kGreen, green.of(v)), kBlue, blue.of(v));
    });
}

void permute_by_shuffles(std::uint8_t* bytes, std::size_t count, int red, int green, int blue) {
    const int one = red | green << 8 | blue << 16 | 3 << 24;
    const __m512i order = _mm512_add_epi32(
        _mm512_set1_epi32(one), _mm512_broadcast_i32x4(_mm_set_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0)));
    each_vector(bytes, 4 * count, [&](__m512i v) { return _mm512_shuffle_epi8(v, order); });
}

// Weights of luma in base-256 digits of -128 to 127, the operands of byte dot products.
struct LumaDigits {
    static constexpr int digit(int weight, int place) {
        for (;; --place) {
            const int low = ((weight + 128) & 255) - 128;
            if (place == 0) return low;
            weight = (weight - low) >> 8;
        }
    }
    static __m512i of(int place) {
        return _mm512_set1_epi32((digit(kLumaRed, place) & 255) | (digit(kLumaGreen, place) & 255) << 8 |
                                 (digit(kLumaBlue, place) & 255) << 16);
    }
    __m512i high = of(2), middle = of(1), low = of(0), bias = _mm512_set1_epi32(kLumaBias >> 8);

    __m512i operator()(__m512i pixels) const {
        static_assert(kLumaBias % 256 == 0);
        __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), pixels, high);
        sum = _mm512_dpbusd_epi32(_mm512_add_epi32(_mm512_slli_epi32(sum, 8), bias), pixels, middle);
        sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), pixels, low);
        return _mm512_srli_epi32(sum, kLumaShift);
    }
};

std::uint64_t luma_sum_by_dots(const std::uint8_t* bytes, std::size_t count) {
    const LumaDigits luma;
    std::uint64_t sum = 0;
    constexpr std::size_t kBlock = 1 << 20;  // 255 * 2^20 fits 32 bits
    for (std::size_t first = 0; first < count; first += kBlock) {
        const std::size_t end = smaller(count, first + kBlock);
        __m512i part = _mm512_setzero_si512();
        for (std::size_t i = first; i < end; i += 16) {
            const std::size_t left = end - i;
            const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1U << left) - 1);
            // Absent pixels are black: their luma is the bias, truncated to zero.
            part = _mm512_add_epi32(part, luma(_mm512_maskz_loadu_epi32(mask, bytes + 4 * i)));
        }
        alignas(64) std::uint32_t lanes[16];
        _mm512_store_si512(lanes, part);
        for (const std::uint32_t lane : lanes) sum += lane;
    }
    return sum;
}

// Copies byte 0 of each pixel to bytes 0, 1 and 2.
inline __m512i spread() {
    return _mm512_broadcast_i32x4(_mm_set_epi8(-1, 12, 12, 12, -1, 8, 8, 8, -1, 4, 4, 4, -1, 0, 0, 0));
}

void grayscale_by_dots(std::uint8_t* bytes, std::size_t count) {
    const LumaDigits luma;
    const __m512i order = spread();
    each_vector(bytes, 4 * count, [&](__m512i v) { return _mm512_shuffle_epi8(luma(v), order); });
}

// Moves `at` towards `to` by the share of their difference, in words.
struct Blend {
    __m512i share;
    __m128i shift;

    explicit Blend(const Share& by) : share(_mm512_set1_epi16(by.share)), shift(_mm_cvtsi32_si128(by.shift)) {}

    __m512i operator()(__m512i at, __m512i to) const {
        const __m512i difference = _mm512_sll_epi16(_mm512_sub_epi16(to, at), shift);
        return _mm512_add_epi16(at, _mm512_mulhi_epi16(difference, share));
    }
};

void saturation_by_dots(std::uint8_t* bytes, std::size_t count, float factor) {
    const LumaDigits luma;
    const Blend blend(Share(1.0F - factor));
    const __m512i order = spread(), zero = _mm512_setzero_si512();
    each_vector(bytes, 4 * count, [&](__m512i v) {
        const __m512i grey = _mm512_shuffle_epi8(luma(v), order);
        return _mm512_packus_epi16(blend(_mm512_unpacklo_epi8(v, zero), _mm512_unpacklo_epi8(grey, zero)),
                                   blend(_mm512_unpackhi_epi8(v, zero), _mm512_unpackhi_epi8(grey, zero)));
    });
}

// Returns words of one channel of 32 pixels: `at` selects its bytes, every fourth one, from two vectors.
inline __m512i channel_words(__m512i first, __m512i second, __m512i at) {
    return _mm512_maskz_permutex2var_epi8(0x5555555555555555, first, at, second);
}

struct HueBy32 {
    __m512i turn, red_at, low_pairs, high_pairs;

    explicit HueBy32(float shift) : turn(_mm512_set1_epi16(static_cast<std::int16_t>(hue_turn(shift)))) {
        alignas(64) std::uint8_t at[64];
        alignas(64) std::uint16_t low[32], high[32];
        for (int i = 0; i < 32; ++i) {
            at[2 * i] = static_cast<std::uint8_t>(4 * i);
            at[2 * i + 1] = 0;
            low[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 32);
            high[i] = static_cast<std::uint16_t>(low[i] + 16);
        }
        red_at = _mm512_load_si512(at);
        low_pairs = _mm512_load_si512(low);
        high_pairs = _mm512_load_si512(high);
    }

    void operator()(std::uint8_t* bytes) const {
        const __m512i first = _mm512_loadu_si512(bytes), second = _mm512_loadu_si512(bytes + 64);
        const __m512i one = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
        const __m512i green_at = _mm512_add_epi16(red_at, one), blue_at = _mm512_add_epi16(green_at, one);
        const __m512i r = channel_words(first, second, red_at), g = channel_words(first, second, green_at),
                      b = channel_words(first, second, blue_at);
        const __m512i most = _mm512_max_epi16(r, _mm512_max_epi16(g, b)),
                      least = _mm512_min_epi16(r, _mm512_min_epi16(g, b)), range = _mm512_sub_epi16(most, least);
        const __mmask32 of_red = _mm512_cmpeq_epi16_mask(r, most), of_green = _mm512_cmpeq_epi16_mask(g, most);
        const __m512i unit = _mm512_slli_epi16(range, kHueShift), two = _mm512_add_epi16(unit, unit),
                      three = _mm512_add_epi16(two, unit), six = _mm512_add_epi16(three, three);
        __m512i h = _mm512_sub_epi16(r, g), from = unit;
        h = _mm512_mask_sub_epi16(h, of_green, b, r);
        from = _mm512_mask_sub_epi16(from, of_green, zero, unit);
        h = _mm512_mask_sub_epi16(h, of_red, g, b);
        from = _mm512_mask_sub_epi16(from, of_red, zero, three);
        const __m512i turned = _mm512_mulhrs_epi16(_mm512_slli_epi16(range, 7), turn);
        h = _mm512_add_epi16(_mm512_slli_epi16(h, kHueShift), _mm512_add_epi16(from, turned));
        h = _mm512_mask_add_epi16(h, _mm512_cmplt_epi16_mask(h, _mm512_sub_epi16(zero, three)), h, six);
        h = _mm512_mask_sub_epi16(h, _mm512_cmpge_epi16_mask(h, three), h, six);
        const __m512i floor = _mm512_slli_epi16(least, kHueShift);
        const auto byte = [&](__m512i value) {
            const __m512i cut = _mm512_add_epi16(floor, _mm512_max_epi16(zero, _mm512_min_epi16(value, unit)));
            const __m512i more = _mm512_mulhi_epu16(cut, _mm512_set1_epi16(kHueScale));
            return _mm512_srli_epi16(_mm512_add_epi16(cut, more), kHueShift);
        };
        const __m512i red = byte(_mm512_sub_epi16(_mm512_abs_epi16(h), unit)),
                      green = byte(_mm512_sub_epi16(two, _mm512_abs_epi16(_mm512_add_epi16(h, unit)))),
                      blue = byte(_mm512_sub_epi16(two, _mm512_abs_epi16(_mm512_sub_epi16(h, unit))));
        const __m512i pairs = _mm512_or_si512(red, _mm512_slli_epi16(green, 8));
        _mm512_storeu_si512(bytes, _mm512_permutex2var_epi16(pairs, low_pairs, blue));
        _mm512_storeu_si512(bytes + 64, _mm512_permutex2var_epi16(pairs, high_pairs, blue));
    }
};

void hue_by_words(std::uint8_t* bytes, std::size_t count, float shift) {
    const HueBy32 turn(shift);
    const std::size_t whole = count / 32 * 32, left = 4 * (count - whole);
    for (std::size_t i = 0; i < whole; i += 32) turn(bytes + 4 * i);
    if (left == 0) return;
    std::uint8_t last[128] = {};
    std::memcpy(last, bytes + 4 * whole, left);
    turn(last);
    std::memcpy(bytes + 4 * whole, last, left);
}

void sharpness_by_words(const std::uint8_t* bytes, int width, int height, float factor, std::uint8_t* out) {
    const std::size_t stride = 4 * static_cast<std::size_t>(width);
    std::memcpy(out, bytes, stride);
    std::memcpy(out + stride * static_cast<std::size_t>(height - 1),
                bytes + stride * static_cast<std::size_t>(height - 1), stride);
    const Blend blend(Share(1.0F - factor));
    const __m512i half = _mm512_set1_epi16(6), by = _mm512_set1_epi16(kThirteenth);
    for (int y = 1; y + 1 < height; ++y) {
        const std::uint8_t* row = bytes + stride * static_cast<std::size_t>(y);
        std::uint8_t* to = out + stride * static_cast<std::size_t>(y);
        std::memcpy(to, row, 4);
        std::memcpy(to + stride - 4, row + stride - 4, 4);
        for (std::size_t i = 4; i + 4 < stride; i += 32) {
            const std::size_t left = stride - 4 - i;
            const auto mask = static_cast<__mmask32>(left >= 32 ? ~0U : (1U << left) - 1);
            const auto words = [&](const std::uint8_t* at) {
                return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, at + i));
            };
            const auto three = [&](const std::uint8_t* at) {
                return _mm512_add_epi16(_mm512_add_epi16(words(at - 4), words(at + 4)), words(at));
            };
            const __m512i at = words(row);
            __m512i sum = _mm512_add_epi16(_mm512_add_epi16(three(row - stride), three(row + stride)), three(row));
            sum = _mm512_add_epi16(_mm512_add_epi16(sum, _mm512_slli_epi16(at, 2)), half);
            const __m512i value = blend(at, _mm512_mulhi_epu16(sum, by));
            // Clamped to bytes: negative words first, since the unsigned narrowing treats them as large.
            const __m512i positive = _mm512_max_epi16(value, _mm512_setzero_si512());
            _mm256_mask_storeu_epi8(to + i, mask, _mm512_cvtusepi16_epi8(positive));
        }
    }
}

struct Words32 {
    static constexpr std::size_t kCount = 32;
    __m512i v;
    static Words32 load(const std::int16_t* at) { return {_mm512_loadu_si512(at)}; }
    static Words32 all(std::int16_t value) { return {_mm512_set1_epi16(value)}; }
    static Words32 widen(const std::uint8_t* at) {
        return {_mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))), 6)};
    }
    void store(std::int16_t* at) const { _mm512_storeu_si512(at, v); }
    void narrow(std::uint8_t* at) const {
        const __m512i whole = _mm512_srai_epi16(_mm512_adds_epi16(v, _mm512_set1_epi16(32)), 6);
        const __m512i positive = _mm512_max_epi16(whole, _mm512_setzero_si512());
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtusepi16_epi8(positive));
    }
    Words32 operator+(Words32 other) const { return {_mm512_add_epi16(v, other.v)}; }
    Words32 operator*(Words32 weight) const { return {_mm512_mulhrs_epi16(v, weight.v)}; }
};

constexpr AugmentKernels wide_table() {
    AugmentKernels table = kTable;
    table.brightness = brightness_by_table;
    table.contrast = contrast_by_table;
    table.saturation = saturation_by_dots;
    table.hue = hue_by_words;
    table.grayscale = grayscale_by_dots;
    table.permute = permute_by_shuffles;
    table.lookup = lookup_by_permutes;
    table.luma_sum = luma_sum_by_dots;
    table.sharpness = sharpness_by_words;
    table.blur = blur_by_words<Words32>;
    return table;
}

constexpr AugmentKernels kWide = wide_table();

}  // namespace

const AugmentKernels& augment_kernels_avx512() { return kWide; }
const WarpKernels& warp_kernels_avx512() { return warping::kTable; }

}  // namespace headrace

#endif
