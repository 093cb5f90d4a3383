// The loops of warp_kernels.hpp, compiled once a level. Included in an unnamed namespace.

namespace warping {

inline int blocked(int count) { return (count + kWarpBlock - 1) / kWarpBlock * kWarpBlock; }

void affine(float x, float dx, float y, float dy, int count, float* xs, float* ys) {
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

// What is no number becomes `low`.
inline float bounded(float value, float low, float high) {
    value = value > low ? value : low;
    return value < high ? value : high;
}

void nearest(const float* xs, const float* ys, int count, int width, int height, std::int32_t* numbers) {
    const auto right = static_cast<float>(width) + 1.0F, bottom = static_cast<float>(height) + 1.0F;
    const std::int32_t outside = width * height;
    for (int i = 0, end = blocked(count); i < end; ++i) {
        const int x = static_cast<int>(bounded(xs[i] + 1.5F, 0.0F, right)) - 1;
        const int y = static_cast<int>(bounded(ys[i] + 1.5F, 0.0F, bottom)) - 1;
        const bool inside = (x >= 0) & (x < width) & (y >= 0) & (y < height);
        numbers[i] = inside ? y * width + x : outside;
    }
}

// The upper left of four pixels of the source for each pixel of a block, and the weights of the right and lower ones in
// 1/32768, once in each half of a word.
struct Corners {
    std::int32_t x[kWarpBlock], y[kWarpBlock], number[kWarpBlock];
    std::uint32_t across[kWarpBlock], down[kWarpBlock];
    bool all_inside, any_inside;
};

inline void find_corners(const float* xs, const float* ys, int width, int height, Corners& corners) {
    const auto right = static_cast<float>(width) + 2.0F, bottom = static_cast<float>(height) + 2.0F;
    const auto columns = static_cast<std::uint32_t>(width), rows = static_cast<std::uint32_t>(height);
    std::uint32_t all = 1, any = 0;
    for (int i = 0; i < kWarpBlock; ++i) {
        const float x = bounded(xs[i] + 2.0F, 0.0F, right), y = bounded(ys[i] + 2.0F, 0.0F, bottom);
        const int whole_x = static_cast<int>(x), whole_y = static_cast<int>(y);
        const auto weight_x = static_cast<std::uint32_t>(
            static_cast<int>((x - static_cast<float>(whole_x)) * 32768.0F));
        const auto weight_y = static_cast<std::uint32_t>(
            static_cast<int>((y - static_cast<float>(whole_y)) * 32768.0F));
        corners.x[i] = whole_x - 2;
        corners.y[i] = whole_y - 2;
        corners.number[i] = (whole_y - 2) * width + (whole_x - 2);
        corners.across[i] = weight_x | weight_x << 16;
        corners.down[i] = weight_y | weight_y << 16;
        const auto from_left = static_cast<std::uint32_t>(whole_x), from_top = static_cast<std::uint32_t>(whole_y);
        all &= static_cast<std::uint32_t>((from_left - 2 < columns - 1) & (from_top - 2 < rows - 1));
        any |= static_cast<std::uint32_t>((from_left - 1 < columns + 1) & (from_top - 1 < rows + 1));
    }
    corners.all_inside = all != 0;
    corners.any_inside = any != 0;
}

// The four pixels of each of a block; X is 255, or all 0 outside.
struct Taps {
    std::uint32_t pixels[4][kWarpBlock];
};

inline void take_taps(const std::uint8_t* canvas, int width, int height, const Corners& corners, Taps& taps) {
    for (int corner = 0; corner < 4; ++corner) {
        const int right = corner & 1, down = corner >> 1;
        for (int i = 0; i < kWarpBlock; ++i) {
            const int x = corners.x[i] + right, y = corners.y[i] + down;
            const bool inside = (x >= 0) & (x < width) & (y >= 0) & (y < height);
            const std::size_t number = inside ? static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                                                    static_cast<std::size_t>(x)
                                              : 0;
            std::uint32_t pixel;
            std::memcpy(&pixel, canvas + 4 * number, 4);
            taps.pixels[corner][i] = inside ? pixel | 0xFF000000U : 0;
        }
    }
}

// Values are in 1/64 level from here on: 0 to 16320, in 16 bits. Products are cut, so that a value is at most 1/20 below
// the exact one.
#if defined(__AVX2__)

inline __m256i words_of(__m128i bytes) { return _mm256_cvtepu8_epi16(bytes); }

// Of four pixels.
inline __m256i blended(__m128i top_left, __m128i top_right, __m128i low_left, __m128i low_right, __m256i across,
                       __m256i down) {
    const auto between = [&](__m128i from, __m128i to) {
        const __m256i start = words_of(from);
        const __m256i rise = _mm256_slli_epi16(_mm256_sub_epi16(words_of(to), start), 7);
        return _mm256_add_epi16(_mm256_slli_epi16(start, 6), _mm256_mulhi_epi16(rise, across));
    };
    const __m256i top = between(top_left, top_right), low = between(low_left, low_right);
    const __m256i rise = _mm256_sub_epi16(low, top);
    return _mm256_add_epi16(top, _mm256_mulhi_epi16(_mm256_add_epi16(rise, rise), down));
}

inline __m256i weights_of(const std::uint32_t* weights) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
    return _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(four), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

inline void put_bytes(__m256i first, __m256i second, std::uint8_t* out) {
    const __m256i half = _mm256_set1_epi16(32);
    first = _mm256_srli_epi16(_mm256_add_epi16(first, half), 6);
    second = _mm256_srli_epi16(_mm256_add_epi16(second, half), 6);
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
}

// Two pixels at each of two places, side by side.
inline __m128 pairs_at(const std::uint8_t* first, const std::uint8_t* second) {
    const __m128 low = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(first)));
    return _mm_loadh_pi(low, reinterpret_cast<const __m64*>(second));
}

inline void left_and_right(const std::uint8_t* canvas, const std::int32_t* numbers, __m128i& left, __m128i& right) {
    const auto at = [&](int i) { return canvas + 4 * static_cast<std::ptrdiff_t>(numbers[i]); };
    const __m128 first = pairs_at(at(0), at(1)), second = pairs_at(at(2), at(3));
    left = _mm_castps_si128(_mm_shuffle_ps(first, second, _MM_SHUFFLE(2, 0, 2, 0)));
    right = _mm_castps_si128(_mm_shuffle_ps(first, second, _MM_SHUFFLE(3, 1, 3, 1)));
}

inline void blend_inside(const std::uint8_t* canvas, int width, const Corners& corners, std::uint8_t* out) {
    const std::uint8_t* below = canvas + 4 * static_cast<std::size_t>(width);
    for (int i = 0; i < kWarpBlock; i += 8) {
        __m256i parts[2];
        for (int half = 0; half < 2; ++half) {
            const int first = i + 4 * half;
            __m128i top_left, top_right, low_left, low_right;
            left_and_right(canvas, corners.number + first, top_left, top_right);
            left_and_right(below, corners.number + first, low_left, low_right);
            parts[half] = blended(top_left, top_right, low_left, low_right, weights_of(corners.across + first),
                                  weights_of(corners.down + first));
        }
        put_bytes(parts[0], parts[1], out + 4 * i);
    }
}

inline void blend_edge(const Taps& taps, const Corners& corners, std::uint32_t fill, std::uint8_t* out) {
    const __m256i background = _mm256_slli_epi16(words_of(_mm_set1_epi32(static_cast<int>(fill & 0xFFFFFF))), 6);
    const __m256i spread = _mm256_setr_epi8(6, 7, 6, 7, 6, 7, 6, 7, 14, 15, 14, 15, 14, 15, 14, 15, 6, 7, 6, 7, 6, 7, 6,
                                            7, 14, 15, 14, 15, 14, 15, 14, 15);
    for (int i = 0; i < kWarpBlock; i += 8) {
        __m256i parts[2];
        for (int half = 0; half < 2; ++half) {
            const int first = i + 4 * half;
            const auto four = [&](int corner) {
                return _mm_loadu_si128(reinterpret_cast<const __m128i*>(taps.pixels[corner] + first));
            };
            const __m256i value = blended(four(0), four(1), four(2), four(3), weights_of(corners.across + first),
                                          weights_of(corners.down + first));
            const __m256i weight = _mm256_shuffle_epi8(value, spread);
            const __m256i share = _mm256_add_epi16(_mm256_add_epi16(weight, weight), _mm256_srli_epi16(weight, 7));
            const __m256i rise = _mm256_sub_epi16(value, background);
            const __m256i mixed =
                _mm256_add_epi16(background, _mm256_mulhi_epi16(_mm256_add_epi16(rise, rise), share));
            const __m256i is_inside = _mm256_cmpeq_epi16(weight, _mm256_set1_epi16(255 << 6));
            parts[half] = _mm256_blendv_epi8(mixed, value, is_inside);
        }
        put_bytes(parts[0], parts[1], out + 4 * i);
    }
}

#else

inline int blended(int top_left, int top_right, int low_left, int low_right, int across, int down) {
    const int top = (top_left << 6) + ((top_right - top_left) * 128 * across >> 16);
    const int low = (low_left << 6) + ((low_right - low_left) * 128 * across >> 16);
    return top + ((low - top) * 2 * down >> 16);
}

inline int weight_of(std::uint32_t both) { return static_cast<int>(both & 0xFFFF); }

inline void blend_inside(const std::uint8_t* canvas, int width, const Corners& corners, std::uint8_t* out) {
    const std::size_t stride = 4 * static_cast<std::size_t>(width);
    for (int i = 0; i < kWarpBlock; ++i) {
        const std::uint8_t *top = canvas + 4 * static_cast<std::ptrdiff_t>(corners.number[i]), *low = top + stride;
        const int across = weight_of(corners.across[i]), down = weight_of(corners.down[i]);
        for (int c = 0; c < 4; ++c) {
            const int value = blended(top[c], top[4 + c], low[c], low[4 + c], across, down);
            out[4 * i + c] = static_cast<std::uint8_t>((value + 32) >> 6);
        }
    }
}

inline void blend_edge(const Taps& taps, const Corners& corners, std::uint32_t fill, std::uint8_t* out) {
    for (int i = 0; i < kWarpBlock; ++i) {
        const int across = weight_of(corners.across[i]), down = weight_of(corners.down[i]);
        const auto value_of = [&](int shift) {
            const auto at = [&](int corner) { return static_cast<int>(taps.pixels[corner][i] >> shift & 255); };
            return blended(at(0), at(1), at(2), at(3), across, down);
        };
        const int weight = value_of(24), share = 2 * weight + (weight >> 7);
        for (int c = 0; c < 4; ++c) {
            const int value = value_of(8 * c), background = c == 3 ? 0 : static_cast<int>(fill >> 8 * c & 255) << 6;
            const int mixed = background + ((value - background) * 2 * share >> 16);
            out[4 * i + c] = static_cast<std::uint8_t>(((weight == 255 << 6 ? value : mixed) + 32) >> 6);
        }
    }
}

#endif

void bilinear(const std::uint8_t* canvas, int width, int height, const float* xs, const float* ys, int count,
              std::uint32_t fill, std::uint8_t* out) {
    Corners corners;
    Taps taps;
    for (int i = 0; i < count; i += kWarpBlock) {
        find_corners(xs + i, ys + i, width, height, corners);
        if (corners.all_inside) {
            blend_inside(canvas, width, corners, out + 4 * i);
        } else if (corners.any_inside) {
            take_taps(canvas, width, height, corners, taps);
            blend_edge(taps, corners, fill, out + 4 * i);
        } else {
            for (int k = 0; k < kWarpBlock; ++k) std::memcpy(out + 4 * (i + k), &fill, 4);
        }
    }
}

// A multiple of 2^-23, from the upper 24 bits.
inline float signed_unit(std::uint32_t word) {
    return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-23F - 1.0F;
}

void noise(std::uint64_t key, std::size_t count, float* xs, float* ys) {
    const auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
    for (std::size_t i = 0; i + 1 < count; i += 2) {
        std::uint32_t a = static_cast<std::uint32_t>(i / 2), b = static_cast<std::uint32_t>(i / 2 >> 32), c = 0, d = 0;
        std::uint32_t key0 = low, key1 = high;
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t first = std::uint64_t{0xD2511F53} * a, second = std::uint64_t{0xCD9E8D57} * c;
            a = static_cast<std::uint32_t>(second >> 32) ^ b ^ key0;
            b = static_cast<std::uint32_t>(second);
            c = static_cast<std::uint32_t>(first >> 32) ^ d ^ key1;
            d = static_cast<std::uint32_t>(first);
            key0 += 0x9E3779B9;
            key1 += 0xBB67AE85;
        }
        xs[i] = signed_unit(a);
        ys[i] = signed_unit(b);
        xs[i + 1] = signed_unit(c);
        ys[i + 1] = signed_unit(d);
    }
}

void symmetric_sum(const float* at, std::ptrdiff_t step, const float* weights, int taps, int count, float* out) {
    constexpr int kWide = 64;
    float sums[kWide];
    for (int i = 0; i < count; i += kWide) {
        const int some = count - i < kWide ? count - i : kWide;
        for (int k = 0; k < some; ++k) sums[k] = weights[0] * at[i + k];
        for (int tap = 1; tap < taps; ++tap) {
            const float *before = at + i - tap * step, *after = at + i + tap * step;
            const float weight = weights[tap];
            for (int k = 0; k < some; ++k) sums[k] = sums[k] + weight * (before[k] + after[k]);
        }
        for (int k = 0; k < some; ++k) out[i + k] = sums[k];
    }
}

constexpr WarpKernels kTable{affine, perspective, displaced, nearest, bilinear, noise, symmetric_sum};

}  // namespace warping
