// Loops of warp_kernels.hpp, compiled once per level. Included in an anonymous namespace.

namespace warping {

inline int blocked(int count) { return (count + kWarpBlock - 1) / kWarpBlock * kWarpBlock; }

void affine(const float* from, const float* step, int count, float* xs, float* ys) {
    const float x = from[0], y = from[1], dx = step[0], dy = step[1];
    for (int i = 0, end = blocked(count); i < end; ++i) {
        const auto at = static_cast<float>(i);
        xs[i] = x + at * dx;
        ys[i] = y + at * dy;
    }
}

void perspective(const float* from, const float* step, int count, float* xs, float* ys) {
    const float x = from[0], y = from[1], w = from[2], dx = step[0], dy = step[1], dw = step[2];
    for (int i = 0, end = blocked(count); i < end; ++i) {
        const auto at = static_cast<float>(i);
        const float by = w + at * dw;
        xs[i] = (x + at * dx) / by - 0.5F;
        ys[i] = (y + at * dy) / by - 0.5F;
    }
}

void displaced(const float* across, const float* down, float y, int count, float* xs, float* ys) {
    for (int i = 0, end = blocked(count); i < end; ++i) {
        xs[i] = static_cast<float>(i) + across[i];
        ys[i] = y + down[i];
    }
}

// Clamps the value; NaN becomes `low`.
inline float bounded(float value, float low, float high) {
    value = value > low ? value : low;
    return value < high ? value : high;
}

// Returns the index of the pixel at (x, y), or `outside`. `right` and `bottom` are the image's size plus one.
inline std::int32_t number_at(float x, float y, float right, float bottom, int width, int height,
                              std::int32_t outside) {
    const int column = static_cast<int>(bounded(x + 1.5F, 0.0F, right)) - 1;
    const int line = static_cast<int>(bounded(y + 1.5F, 0.0F, bottom)) - 1;
    const bool inside = (static_cast<unsigned>(column) < static_cast<unsigned>(width)) &
                        (static_cast<unsigned>(line) < static_cast<unsigned>(height));
    return inside ? line * width + column : outside;
}

void nearest(const float* xs, const float* ys, int count, int width, int height, std::int32_t* numbers) {
    const auto right = static_cast<float>(width) + 1.0F, bottom = static_cast<float>(height) + 1.0F;
    for (int i = 0, end = blocked(count); i < end; ++i)
        numbers[i] = number_at(xs[i], ys[i], right, bottom, width, height, width * height);
}

void nearest_affine(const float* from, const float* step, int count, int width, int height, std::int32_t* numbers) {
    const auto right = static_cast<float>(width) + 1.0F, bottom = static_cast<float>(height) + 1.0F;
    const float x = from[0], y = from[1], dx = step[0], dy = step[1];
    for (int i = 0, end = blocked(count); i < end; ++i) {
        const auto at = static_cast<float>(i);
        numbers[i] = number_at(x + at * dx, y + at * dy, right, bottom, width, height, width * height);
    }
}

// Four pixels per store, inserted into a vector one by one: faster than word by word, and than the levels' gather
// instructions.
void take_pixels(const std::int32_t* numbers, int count, const std::uint8_t* from, std::uint8_t* to) {
    const auto pixel = [&](int i) {
        std::int32_t value;
        std::memcpy(&value, from + 4 * static_cast<std::ptrdiff_t>(numbers[i]), 4);
        return value;
    };
    int i = 0;
#if defined(__AVX2__)
    for (; i + 4 <= count; i += 4) {
        const __m128i low = _mm_insert_epi32(_mm_cvtsi32_si128(pixel(i)), pixel(i + 1), 1);
        const __m128i high = _mm_insert_epi32(_mm_cvtsi32_si128(pixel(i + 2)), pixel(i + 3), 1);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4 * i), _mm_unpacklo_epi64(low, high));
    }
#endif
#pragma GCC unroll 8
    for (; i < count; ++i) {
        const std::int32_t value = pixel(i);
        std::memcpy(to + 4 * i, &value, 4);
    }
}

// Upper left of four source pixels for each pixel of a block, and the weights of the right and lower pixels in 1/32768,
// repeated in both halves of a word.
struct Corners {
    std::int32_t x[kWarpBlock], y[kWarpBlock], number[kWarpBlock];
    std::uint32_t across[kWarpBlock], down[kWarpBlock];
    bool all_inside, any_inside;
};

inline void find_corners(const float* xs, const float* ys, int width, int height, Corners& corners) {
    const auto right = static_cast<float>(width) + 2.0F, bottom = static_cast<float>(height) + 2.0F;
    std::int32_t beyond = 0, apart = -1;  // negative if any is partly outside; if all are entirely outside
    for (int i = 0; i < kWarpBlock; ++i) {
        const float x = bounded(xs[i] + 2.0F, 0.0F, right), y = bounded(ys[i] + 2.0F, 0.0F, bottom);
        const int whole_x = static_cast<int>(x), whole_y = static_cast<int>(y);
        const int across = static_cast<int>((x - static_cast<float>(whole_x)) * 32768.0F);
        const int down = static_cast<int>((y - static_cast<float>(whole_y)) * 32768.0F);
        corners.x[i] = whole_x - 2;
        corners.y[i] = whole_y - 2;
        corners.number[i] = (whole_y - 2) * width + (whole_x - 2);
        corners.across[i] = static_cast<std::uint32_t>(across | across << 16);
        corners.down[i] = static_cast<std::uint32_t>(down | down << 16);
        beyond |= (whole_x - 2) | (width - whole_x) | (whole_y - 2) | (height - whole_y);
        apart &= (whole_x - 1) | (width + 1 - whole_x) | (whole_y - 1) | (height + 1 - whole_y);
    }
    corners.all_inside = beyond >= 0;
    corners.any_inside = apart >= 0;
}

// Upper two and lower two of the four source pixels for each pixel of a block, adjacent; X is 255, or all 0 outside.
struct Taps {
    std::uint32_t top[2 * kWarpBlock], low[2 * kWarpBlock];
};

#if defined(__AVX2__)

inline void take_taps(const std::uint8_t* canvas, int width, int height, const Corners& corners, Taps& taps) {
    const __m256i last_x = _mm256_set1_epi32(width - 1), last_y = _mm256_set1_epi32(height - 1);
    const auto eight = [](const std::int32_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); };
    for (int half = 0; half < 4; ++half) {
        const int i = 8 * (half & 1), down = half >> 1;
        const __m256i y = _mm256_add_epi32(eight(corners.y + i), _mm256_set1_epi32(down));
        const auto side = [&](int right) {
            const __m256i x = _mm256_add_epi32(eight(corners.x + i), _mm256_set1_epi32(right));
            const __m256i beyond = _mm256_or_si256(_mm256_or_si256(x, _mm256_sub_epi32(last_x, x)),
                                                   _mm256_or_si256(y, _mm256_sub_epi32(last_y, y)));
            const __m256i inside = _mm256_cmpgt_epi32(beyond, _mm256_set1_epi32(-1));
            const __m256i at = _mm256_add_epi32(eight(corners.number + i), _mm256_set1_epi32(right + down * width));
            const __m256i pixels = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(),
                                                               reinterpret_cast<const int*>(canvas), at, inside, 4);
            return _mm256_or_si256(pixels, _mm256_slli_epi32(inside, 24));
        };
        const __m256i left = side(0), right = side(1);
        const __m256i low = _mm256_unpacklo_epi32(left, right), high = _mm256_unpackhi_epi32(left, right);
        auto* const to = reinterpret_cast<__m256i*>((down != 0 ? taps.low : taps.top) + 2 * i);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
    }
}

#else

inline void take_taps(const std::uint8_t* canvas, int width, int height, const Corners& corners, Taps& taps) {
    for (int corner = 0; corner < 4; ++corner) {
        const int right = corner & 1, down = corner >> 1;
        std::uint32_t* const to = down != 0 ? taps.low : taps.top;
        for (int i = 0; i < kWarpBlock; ++i) {
            const int x = corners.x[i] + right, y = corners.y[i] + down;
            const bool inside = (x >= 0) & (x < width) & (y >= 0) & (y < height);
            const std::size_t number =
                inside ? static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(x)
                       : 0;
            std::uint32_t pixel;
            std::memcpy(&pixel, canvas + 4 * number, 4);
            to[2 * i + right] = inside ? pixel | 0xFF000000U : 0;
        }
    }
}

#endif

constexpr std::int32_t kInTaps[kWarpBlock] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};

// Two rows of pixels, and the indices of a block's left pixels in them.
struct Rows {
    const std::uint8_t *top, *low;
    const std::int32_t* numbers;
};

// Values are in 1/64 level from here on: 0 to 16320, in 16 bits. Products are truncated, so a value is at most 1/20
// below the exact one. Vertical first, then horizontal.
#if defined(__AVX2__)

// Loads two pixels at each of two indices, adjacent.
inline __m128i pairs_at(const std::uint8_t* row, const std::int32_t* numbers) {
    const std::uint8_t *first = row + 4 * static_cast<std::ptrdiff_t>(numbers[0]),
                       *second = row + 4 * static_cast<std::ptrdiff_t>(numbers[1]);
    const __m128 low = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(first)));
    return _mm_castps_si128(_mm_loadh_pi(low, reinterpret_cast<const __m64*>(second)));
}

#endif
#if defined(__AVX512BW__)

using Words = __m512i;
constexpr int kGroup = 8;  // pixels of a vector

inline Words add(Words a, Words b) { return _mm512_add_epi16(a, b); }
inline Words subtract(Words a, Words b) { return _mm512_sub_epi16(a, b); }
inline Words product(Words a, Words b) { return _mm512_mulhi_epi16(a, b); }
template <int bits>
inline Words shifted(Words a) {
    return _mm512_slli_epi16(a, bits);
}

inline Words pairs_of(const std::uint8_t* row, const std::int32_t* numbers) {
    return _mm512_cvtepu8_epi16(
        _mm256_inserti128_si256(_mm256_castsi128_si256(pairs_at(row, numbers)), pairs_at(row, numbers + 2), 1));
}

inline Words down_of(const std::uint32_t* weights) {
    const __m512i each = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
    return _mm512_permutexvar_epi32(each, _mm512_castsi128_si512(four));
}

// Weights in the pixel order of `left` and `right`: 0 4 1 5 2 6 3 7.
inline Words across_of(const std::uint32_t* weights) {
    const __m512i each = _mm512_setr_epi32(0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7);
    const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
    return _mm512_permutexvar_epi32(each, _mm512_castsi256_si512(eight));
}

inline Words left(Words first, Words second) { return _mm512_unpacklo_epi64(first, second); }
inline Words right(Words first, Words second) { return _mm512_unpackhi_epi64(first, second); }

inline void put_bytes(const Words* words, std::uint8_t* out) {
    for (int half = 0; half < 2; ++half) {
        const __m512i whole = _mm512_srli_epi16(_mm512_add_epi16(words[half], _mm512_set1_epi16(32)), 6);
        const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * half),
                            _mm256_permutevar8x32_epi32(_mm512_cvtepi16_epi8(whole), order));
    }
}

inline Words background_of(std::uint32_t fill) {
    return shifted<6>(_mm512_cvtepu8_epi16(_mm256_set1_epi32(static_cast<int>(fill & 0xFFFFFF))));
}

// The last of each pixel's four words, in all of them.
inline Words weight_of(Words values) {
    return _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(values, _MM_PERM_DDDD), _MM_PERM_DDDD);
}

inline Words share_of(Words weight) { return add(add(weight, weight), _mm512_srli_epi16(weight, 7)); }

inline Words where_inside(Words weight, Words value, Words other) {
    return _mm512_mask_mov_epi16(other, _mm512_cmpeq_epi16_mask(weight, _mm512_set1_epi16(255 << 6)), value);
}

#elif defined(__AVX2__)

using Words = __m256i;
constexpr int kGroup = 4;

inline Words add(Words a, Words b) { return _mm256_add_epi16(a, b); }
inline Words subtract(Words a, Words b) { return _mm256_sub_epi16(a, b); }
inline Words product(Words a, Words b) { return _mm256_mulhi_epi16(a, b); }
template <int bits>
inline Words shifted(Words a) {
    return _mm256_slli_epi16(a, bits);
}

inline Words pairs_of(const std::uint8_t* row, const std::int32_t* numbers) {
    return _mm256_cvtepu8_epi16(pairs_at(row, numbers));
}

inline Words down_of(const std::uint32_t* weights) {
    const __m128i two = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights));
    return _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(two), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

// Weights in the pixel order of `left` and `right`: 0 2 1 3.
inline Words across_of(const std::uint32_t* weights) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
    return _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(four), _mm256_setr_epi32(0, 0, 2, 2, 1, 1, 3, 3));
}

inline Words left(Words first, Words second) { return _mm256_unpacklo_epi64(first, second); }
inline Words right(Words first, Words second) { return _mm256_unpackhi_epi64(first, second); }

inline void put_bytes(const Words* words, std::uint8_t* out) {
    const auto whole = [](Words value) { return _mm256_srli_epi16(_mm256_add_epi16(value, _mm256_set1_epi16(32)), 6); };
    for (int half = 0; half < 2; ++half) {
        const __m256i bytes = _mm256_packus_epi16(whole(words[2 * half]), whole(words[2 * half + 1]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * half),
                            _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    }
}

inline Words background_of(std::uint32_t fill) {
    return shifted<6>(_mm256_cvtepu8_epi16(_mm_set1_epi32(static_cast<int>(fill & 0xFFFFFF))));
}

// The last of each pixel's four words, in all of them.
inline Words weight_of(Words values) { return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(values, 0xFF), 0xFF); }

inline Words share_of(Words weight) { return add(add(weight, weight), _mm256_srli_epi16(weight, 7)); }

inline Words where_inside(Words weight, Words value, Words other) {
    return _mm256_blendv_epi8(other, value, _mm256_cmpeq_epi16(weight, _mm256_set1_epi16(255 << 6)));
}

#endif
#if defined(__AVX2__)

inline Words blended(const Rows& rows, const Corners& corners, int first) {
    const auto column = [&](int at) {
        const Words start = pairs_of(rows.top, rows.numbers + at);
        const Words rise = shifted<7>(subtract(pairs_of(rows.low, rows.numbers + at), start));
        return add(shifted<6>(start), product(rise, down_of(corners.down + at)));
    };
    const Words one = column(first), two = column(first + kGroup / 2);
    const Words start = left(one, two), rise = subtract(right(one, two), start);
    return add(start, product(add(rise, rise), across_of(corners.across + first)));
}

inline void blend_inside(const Rows& rows, const Corners& corners, std::uint8_t* out) {
    Words words[kWarpBlock / kGroup];
    for (int i = 0; i < kWarpBlock; i += kGroup) words[i / kGroup] = blended(rows, corners, i);
    put_bytes(words, out);
}

inline void blend_edge(const Rows& rows, const Corners& corners, std::uint32_t fill, std::uint8_t* out) {
    Words words[kWarpBlock / kGroup];
    const Words background = background_of(fill);
    for (int i = 0; i < kWarpBlock; i += kGroup) {
        const Words value = blended(rows, corners, i), weight = weight_of(value);
        const Words rise = subtract(value, background);
        words[i / kGroup] = where_inside(weight, value, add(background, product(add(rise, rise), share_of(weight))));
    }
    put_bytes(words, out);
}

#else

inline int weight_of(std::uint32_t both) { return static_cast<int>(both & 0xFFFF); }

// Computes the four values of pixel `i`.
inline void blended(const Rows& rows, const Corners& corners, int i, int* values) {
    const std::uint8_t *top = rows.top + 4 * static_cast<std::ptrdiff_t>(rows.numbers[i]),
                       *low = rows.low + 4 * static_cast<std::ptrdiff_t>(rows.numbers[i]);
    const int across = weight_of(corners.across[i]), down = weight_of(corners.down[i]);
    for (int c = 0; c < 4; ++c) {
        const int left = (top[c] << 6) + ((low[c] - top[c]) * 128 * down >> 16);
        const int right = (top[4 + c] << 6) + ((low[4 + c] - top[4 + c]) * 128 * down >> 16);
        values[c] = left + ((right - left) * 2 * across >> 16);
    }
}

inline void blend_inside(const Rows& rows, const Corners& corners, std::uint8_t* out) {
    for (int i = 0; i < kWarpBlock; ++i) {
        int values[4];
        blended(rows, corners, i, values);
        for (int c = 0; c < 4; ++c) out[4 * i + c] = static_cast<std::uint8_t>((values[c] + 32) >> 6);
    }
}

inline void blend_edge(const Rows& rows, const Corners& corners, std::uint32_t fill, std::uint8_t* out) {
    for (int i = 0; i < kWarpBlock; ++i) {
        int values[4];
        blended(rows, corners, i, values);
        const int weight = values[3], share = 2 * weight + (weight >> 7);
        for (int c = 0; c < 4; ++c) {
            const int background = c == 3 ? 0 : static_cast<int>(fill >> 8 * c & 255) << 6;
            const int mixed = background + ((values[c] - background) * 2 * share >> 16);
            out[4 * i + c] = static_cast<std::uint8_t>(((weight == 255 << 6 ? values[c] : mixed) + 32) >> 6);
        }
    }
}

#endif

void bilinear(const std::uint8_t* canvas, int width, int height, const float* xs, const float* ys, int count,
              std::uint32_t fill, std::uint8_t* out) {
    const std::size_t stride = 4 * static_cast<std::size_t>(width);
    Corners corners;
    Taps taps;
    for (int i = 0; i < count; i += kWarpBlock) {
        find_corners(xs + i, ys + i, width, height, corners);
        if (corners.all_inside) {
            blend_inside({canvas, canvas + stride, corners.number}, corners, out + 4 * i);
        } else if (corners.any_inside) {
            take_taps(canvas, width, height, corners, taps);
            const auto *top = reinterpret_cast<const std::uint8_t*>(taps.top),
                       *low = reinterpret_cast<const std::uint8_t*>(taps.low);
            blend_edge({top, low, kInTaps}, corners, fill, out + 4 * i);
        } else {
            for (int k = 0; k < kWarpBlock; ++k) std::memcpy(out + 4 * (i + k), &fill, 4);
        }
    }
}

#include "augment/elastic_kernels.inl"

constexpr WarpKernels kTable{affine,      perspective, displaced, nearest,      nearest_affine,
                             take_pixels, bilinear,    noise,     symmetric_sum};

}  // namespace warping
