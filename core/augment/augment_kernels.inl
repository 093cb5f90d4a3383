// Loops of augment_kernels.hpp, compiled once per level. src/headrace/device/colour_operations.py performs the same
// steps on a device, and a test checks that both are equal. Included in an anonymous namespace; plain loops that
// compilers vectorize for the file's instruction set.


// Replaces std::max: a template compiled for this file's instruction set could replace its twin in another file.
template <class T>
inline T larger(T a, T b) {
    return a > b ? a : b;
}
template <class T>
inline T smaller(T a, T b) {
    return a < b ? a : b;
}

inline int red_of(std::uint32_t pixel) { return static_cast<int>(pixel & 255); }
inline int green_of(std::uint32_t pixel) { return static_cast<int>(pixel >> 8 & 255); }
inline int blue_of(std::uint32_t pixel) { return static_cast<int>(pixel >> 16 & 255); }

inline std::uint32_t pack(int red, int green, int blue) {
    return static_cast<std::uint32_t>(red) | static_cast<std::uint32_t>(green) << 8 |
           static_cast<std::uint32_t>(blue) << 16;
}

// 0.2989, 0.587 and 0.114 in 1/2^22, and a bias with which the truncated sum equals torchvision's float result for all
// but 20 of the 2^24 colours.
constexpr int kLumaShift = 22, kLumaRed = 1253677, kLumaGreen = 2462056, kLumaBlue = 478151, kLumaBias = 256;

inline int luma_of(std::uint32_t pixel) {
    return (red_of(pixel) * kLumaRed + green_of(pixel) * kLumaGreen + blue_of(pixel) * kLumaBlue + kLumaBias) >>
           kLumaShift;
}

// Multiplication of differences of bytes: floor(difference * share), with the share in 1/2^(16 - shift) so that it fits
// 16 bits. A difference shifted left by `shift` fits 16 bits too, and the high half of their product is the floor.
struct Share {
    int shift = 1;
    std::int16_t share = 0;

    explicit Share(float value) {
        const float most = 63.9F;
        value = value > most ? most : value < -most ? -most : value;
        const float size = value < 0 ? -value : value;
        while (size * static_cast<float>(1 << (16 - shift)) > 32767.0F) ++shift;
        const float scaled = value * static_cast<float>(1 << (16 - shift));
        share = static_cast<std::int16_t>(scaled < 0 ? scaled - 0.5F : scaled + 0.5F);
    }

    int of(int difference) const { return (difference * share) >> (16 - shift); }
};

inline int cut(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

inline int to_byte(float value) {
    value = value < 0 ? 0 : value;
    value = value > 255 ? 255 : value;
    return static_cast<int>(value);
}

inline std::uint32_t* pixels_of(std::uint8_t* bytes) { return reinterpret_cast<std::uint32_t*>(bytes); }
inline const std::uint32_t* pixels_of(const std::uint8_t* bytes) {
    return reinterpret_cast<const std::uint32_t*>(bytes);
}

void brightness(std::uint8_t* bytes, std::size_t count, float factor) {
    for (std::size_t i = 0; i < 4 * count; ++i)
        bytes[i] = static_cast<std::uint8_t>(to_byte(static_cast<float>(bytes[i]) * factor));
}

void contrast(std::uint8_t* bytes, std::size_t count, float factor, float mean) {
    const float other = mean * (1.0F - factor);
    for (std::size_t i = 0; i < 4 * count; ++i)
        bytes[i] = static_cast<std::uint8_t>(to_byte(static_cast<float>(bytes[i]) * factor + other));
}

void saturation(std::uint8_t* bytes, std::size_t count, float factor) {
    std::uint32_t* pixels = pixels_of(bytes);
    const Share rest(1.0F - factor);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t p = pixels[i];
        const int luma = luma_of(p), red = red_of(p), green = green_of(p), blue = blue_of(p);
        pixels[i] = pack(cut(red + rest.of(luma - red)), cut(green + rest.of(luma - green)),
                         cut(blue + rest.of(luma - blue)));
    }
}

// With the hue h in sixths of a circle from cyan, -3 to 3, and the range of a pixel's bytes, red is the minimum byte
// plus range * (|h| - 1), green range * (2 - |h + 1|), blue range * (2 - |h - 1|), each clamped to the range. So only
// range * h is needed, without a division; in sixteenths of a level it fits 16 bits.
constexpr int kHueShift = 4;

// Rotation of a range of one level, in sixteenths of a level, in 1/256.
inline int hue_turn(float shift) {
    const float turn = 6.0F * shift * 4096.0F;
    return static_cast<int>(turn < 0 ? turn - 0.5F : turn + 0.5F);
}

// torchvision multiplies fractions by 255.999 and truncates: here, a factor of 1 + 257/65536.
constexpr int kHueScale = 257;

inline int hue_byte(int sixteenths) { return (sixteenths + (sixteenths * kHueScale >> 16)) >> kHueShift; }

inline int size_of_number(int value) { return value < 0 ? -value : value; }

void hue(std::uint8_t* bytes, std::size_t count, float shift) {
    std::uint32_t* pixels = pixels_of(bytes);
    const int turn = hue_turn(shift);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t p = pixels[i];
        const int r = red_of(p), g = green_of(p), b = blue_of(p);
        const int most = larger(r, larger(g, b)), least = smaller(r, smaller(g, b)), range = most - least;
        const int from_most = r == most ? g - b - 3 * range : g == most ? b - r - range : r - g + range;
        const int unit = range << kHueShift;
        int h = from_most * 16 + ((range * turn + 128) >> 8);
        h = h < -3 * unit ? h + 6 * unit : h;
        h = h >= 3 * unit ? h - 6 * unit : h;
        const int red = size_of_number(h) - unit, green = 2 * unit - size_of_number(h + unit),
                  blue = 2 * unit - size_of_number(h - unit);
        const int floor = least << kHueShift;
        pixels[i] = pack(hue_byte(floor + larger(0, smaller(red, unit))),
                         hue_byte(floor + larger(0, smaller(green, unit))),
                         hue_byte(floor + larger(0, smaller(blue, unit))));
    }
}

void grayscale(std::uint8_t* bytes, std::size_t count) {
    std::uint32_t* pixels = pixels_of(bytes);
    for (std::size_t i = 0; i < count; ++i) {
        const int luma = luma_of(pixels[i]);
        pixels[i] = pack(luma, luma, luma);
    }
}

void invert(std::uint8_t* bytes, std::size_t count) {
    for (std::size_t i = 0; i < 4 * count; ++i) bytes[i] = static_cast<std::uint8_t>(255 - bytes[i]);
}

void solarize(std::uint8_t* bytes, std::size_t count, int threshold) {
    if (threshold > 255) return;
    const auto from = static_cast<std::uint8_t>(larger(0, threshold));
    for (std::size_t i = 0; i < 4 * count; ++i) {
        const std::uint8_t value = bytes[i];
        bytes[i] = value >= from ? static_cast<std::uint8_t>(255 - value) : value;
    }
}

void posterize(std::uint8_t* bytes, std::size_t count, std::uint8_t mask) {
    for (std::size_t i = 0; i < 4 * count; ++i) bytes[i] = bytes[i] & mask;
}

void permute(std::uint8_t* bytes, std::size_t count, int red, int green, int blue) {
    std::uint32_t* pixels = pixels_of(bytes);
    const int from_red = 8 * red, from_green = 8 * green, from_blue = 8 * blue;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t p = pixels[i];
        pixels[i] = (p >> from_red & 255) | (p >> from_green & 255) << 8 | (p >> from_blue & 255) << 16;
    }
}

void lookup(std::uint8_t* bytes, std::size_t count, const std::uint8_t* tables) {
    for (std::size_t i = 0; i < count; ++i) {
        bytes[4 * i] = tables[bytes[4 * i]];
        bytes[4 * i + 1] = tables[256 + bytes[4 * i + 1]];
        bytes[4 * i + 2] = tables[512 + bytes[4 * i + 2]];
    }
}

std::uint64_t luma_sum(const std::uint8_t* bytes, std::size_t count) {
    const std::uint32_t* pixels = pixels_of(bytes);
    std::uint64_t sum = 0;
    constexpr std::size_t kBlock = 1 << 20;  // 255 * 2^20 fits 32 bits
    for (std::size_t first = 0; first < count; first += kBlock) {
        const std::size_t end = smaller(count, first + kBlock);
        std::uint32_t part = 0;
        for (std::size_t i = first; i < end; ++i) part += static_cast<std::uint32_t>(luma_of(pixels[i]));
        sum += part;
    }
    return sum;
}

void range(const std::uint8_t* bytes, std::size_t count, std::uint8_t* low, std::uint8_t* high) {
    constexpr std::size_t kLanes = 64;
    std::uint8_t least[kLanes], most[kLanes];
    std::memset(least, 255, kLanes);
    std::memset(most, 0, kLanes);
    std::size_t i = 0;
    for (; i + kLanes <= 4 * count; i += kLanes) {
        for (std::size_t k = 0; k < kLanes; ++k) {
            least[k] = smaller(least[k], bytes[i + k]);
            most[k] = larger(most[k], bytes[i + k]);
        }
    }
    for (std::size_t k = 0; i + k < 4 * count; ++k) {
        least[k] = smaller(least[k], bytes[i + k]);
        most[k] = larger(most[k], bytes[i + k]);
    }
    for (std::size_t channel = 0; channel < 3; ++channel) {
        low[channel] = 255;
        high[channel] = 0;
        for (std::size_t k = channel; k < kLanes; k += 4) {
            low[channel] = smaller(low[channel], least[k]);
            high[channel] = larger(high[channel], most[k]);
        }
    }
}

void histogram(const std::uint8_t* bytes, std::size_t count, std::uint32_t* counts) {
    for (std::size_t i = 0; i < count; ++i) {
        ++counts[bytes[4 * i]];
        ++counts[256 + bytes[4 * i + 1]];
        ++counts[512 + bytes[4 * i + 2]];
    }
}

// 1/13 in 1/2^16, exact for sums of 13 bytes.
constexpr int kThirteenth = 5042;

void sharpness(const std::uint8_t* bytes, int width, int height, float factor, std::uint8_t* out) {
    const std::size_t stride = 4 * static_cast<std::size_t>(width);
    std::memcpy(out, bytes, stride * static_cast<std::size_t>(height));
    const Share rest(1.0F - factor);
    for (int y = 1; y + 1 < height; ++y) {
        const std::uint8_t* row = bytes + stride * static_cast<std::size_t>(y);
        std::uint8_t* to = out + stride * static_cast<std::size_t>(y);
        for (std::size_t i = 4; i + 4 < stride; ++i) {
            const std::uint8_t *up = row - stride + i, *at = row + i, *down = row + stride + i;
            const int sum = up[-4] + up[0] + up[4] + at[-4] + 5 * at[0] + at[4] + down[-4] + down[0] + down[4];
            const int mean = ((sum + 6) * kThirteenth) >> 16;  // to nearest: multiples of 1/13 are never ties
            to[i] = static_cast<std::uint8_t>(cut(at[0] + rest.of(mean - at[0])));
        }
    }
}

inline int reflected(int at, int size) {
    if (size == 1) return 0;
    while (at < 0 || at >= size) at = at < 0 ? -at : 2 * size - 2 - at;
    return at;
}

// Writes the margins of a row of pixels, reflected at its first and last pixel.
inline void reflect_ends(std::int16_t* line, int width, int taps) {
    for (int k = 1; k < taps; ++k) {
        std::memcpy(line - 4 * k, line + 4 * reflected(-k, width), 8);
        std::memcpy(line + 4 * (width - 1 + k), line + 4 * reflected(width - 1 + k, width), 8);
    }
}

// Uses 16-bit values in 1/64 level: the sum of two neighbours fits, and each product is rounded to 1/64.
void blur(std::uint8_t* bytes, int width, int height, const std::int16_t* across, int across_taps,
          const std::int16_t* down, int down_taps, std::int16_t* rows) {
    const std::size_t stride = 4 * static_cast<std::size_t>(width);
    std::int16_t* blurred = rows + stride + kBlurReach + 2 * blur_margin(across_taps);
    for (int y = 0; y < height; ++y) {
        const std::uint8_t* row = bytes + stride * static_cast<std::size_t>(y);
        std::int16_t* line = rows + blur_margin(across_taps);
        for (std::size_t i = 0; i < stride; ++i) line[i] = static_cast<std::int16_t>(row[i] << 6);
        reflect_ends(line, width, across_taps);
        std::int16_t* to = blurred + stride * static_cast<std::size_t>(y);
        for (std::size_t i = 0; i < stride; ++i)
            to[i] = static_cast<std::int16_t>((((line[i] * across[0]) >> 14) + 1) >> 1);
        for (int k = 1; k < across_taps; ++k) {
            const std::int16_t weight = across[k];
            const std::int16_t *before = line - 4 * k, *after = line + 4 * k;
            for (std::size_t i = 0; i < stride; ++i) {
                const auto both = static_cast<std::int16_t>(before[i] + after[i]);
                to[i] = static_cast<std::int16_t>(to[i] + ((((both * weight) >> 14) + 1) >> 1));
            }
        }
    }
    for (int y = 0; y < height; ++y) {
        std::int16_t* sum = rows;
        const std::int16_t* middle = blurred + stride * static_cast<std::size_t>(y);
        for (std::size_t i = 0; i < stride; ++i)
            sum[i] = static_cast<std::int16_t>((((middle[i] * down[0]) >> 14) + 1) >> 1);
        for (int k = 1; k < down_taps; ++k) {
            const std::int16_t weight = down[k];
            const std::int16_t* before = blurred + stride * static_cast<std::size_t>(reflected(y - k, height));
            const std::int16_t* after = blurred + stride * static_cast<std::size_t>(reflected(y + k, height));
            for (std::size_t i = 0; i < stride; ++i) {
                const auto both = static_cast<std::int16_t>(before[i] + after[i]);
                sum[i] = static_cast<std::int16_t>(sum[i] + ((((both * weight) >> 14) + 1) >> 1));
            }
        }
        std::uint8_t* to = bytes + stride * static_cast<std::size_t>(y);
        for (std::size_t i = 0; i < stride; ++i) {
            const int value = (sum[i] + 32) >> 6;
            to[i] = static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
}

void add_weighted(const std::uint8_t* bytes, std::size_t count, float weight, float* sums) {
    for (std::size_t i = 0; i < 4 * count; ++i) sums[i] = sums[i] + static_cast<float>(bytes[i]) * weight;
}

void mix(const std::uint8_t* original, std::size_t count, float share, const float* sums, std::uint8_t* out) {
    const float rest = 1.0F - share;
    for (std::size_t i = 0; i < 4 * count; ++i)
        out[i] = static_cast<std::uint8_t>(to_byte(static_cast<float>(original[i]) * rest + sums[i] * share));
}

constexpr AugmentKernels kTable{brightness, contrast, saturation, hue, grayscale, invert, solarize, posterize,
                                permute, lookup, luma_sum, range, histogram, sharpness, blur, add_weighted, mix};
