// Gaussian blur with vectors of 16-bit words, for levels with a rounding high multiply. Included after
// augment_kernels.inl, which has a `blur` with the same bits. Sums stay in registers over all taps.

// Width in words of the strips for the vertical blur: twice as many rows of it as taps fit in the L1 cache.
constexpr std::size_t kStrip = 256;

template <class Words>
void blur_across(const std::int16_t* line, std::size_t size, const std::int16_t* taps, int count, std::int16_t* to) {
    constexpr std::size_t kStep = Words::kCount;
    for (std::size_t i = 0; i < size; i += 2 * kStep) {
        Words a = Words::load(line + i) * Words::all(taps[0]);
        Words b = Words::load(line + i + kStep) * Words::all(taps[0]);
        for (int k = 1; k < count; ++k) {
            const std::int16_t *before = line + i - 4 * k, *after = line + i + 4 * k;
            const Words weight = Words::all(taps[k]);
            a = a + (Words::load(before) + Words::load(after)) * weight;
            b = b + (Words::load(before + kStep) + Words::load(after + kStep)) * weight;
        }
        a.store(to + i);
        b.store(to + i + kStep);
    }
}

// Narrows two vectors to bytes and stores the first `left`.
template <class Words>
inline void narrow_both(Words a, Words b, std::size_t left, std::uint8_t* to) {
    constexpr std::size_t kStep = Words::kCount;
    alignas(64) std::uint8_t last[2 * kStep];
    std::uint8_t* at = left >= 2 * kStep ? to : last;
    a.narrow(at);
    b.narrow(at + kStep);
    if (at == last) std::memcpy(to, last, left);
}

// `row_at(k)` is the offset of the row k below, or above for negative k.
template <class Words, class RowAt>
void blur_down(const std::int16_t* middle, std::size_t from, std::size_t end, const std::int16_t* taps, int count,
               std::uint8_t* to, RowAt row_at) {
    constexpr std::size_t kStep = Words::kCount;
    for (std::size_t i = from; i < end; i += 2 * kStep) {
        const std::int16_t* at = middle + i;
        Words a = Words::load(at) * Words::all(taps[0]);
        Words b = Words::load(at + kStep) * Words::all(taps[0]);
        for (int k = 1; k < count; ++k) {
            const std::int16_t *before = at + row_at(-k), *after = at + row_at(k);
            const Words weight = Words::all(taps[k]);
            a = a + (Words::load(before) + Words::load(after)) * weight;
            b = b + (Words::load(before + kStep) + Words::load(after + kStep)) * weight;
        }
        narrow_both(a, b, end - i, to + i);
    }
}

// The same for two rows with all neighbours inside the image: the lower row's neighbour k above is the upper row's
// neighbour k - 1 above, and so on, so each row is loaded once for both.
template <class Words>
void blur_two_down(const std::int16_t* middle, std::ptrdiff_t step, std::size_t from, std::size_t end,
                   const std::int16_t* taps, int count, std::uint8_t* to, std::size_t stride) {
    constexpr std::size_t kStep = Words::kCount;
    for (std::size_t i = from; i < end; i += 2 * kStep) {
        const std::int16_t* at = middle + i;
        Words above = Words::load(at), more_above = Words::load(at + kStep);
        Words below = Words::load(at + step), more_below = Words::load(at + step + kStep);
        const Words first = Words::all(taps[0]);
        Words a = above * first, b = more_above * first, c = below * first, d = more_below * first;
        for (int k = 1; k < count; ++k) {
            const std::int16_t *before = at - k * step, *after = at + (k + 1) * step;
            const Words weight = Words::all(taps[k]);
            const Words row = Words::load(before), more_row = Words::load(before + kStep);
            const Words next = Words::load(after), more_next = Words::load(after + kStep);
            a = a + (row + below) * weight;
            b = b + (more_row + more_below) * weight;
            c = c + (above + next) * weight;
            d = d + (more_above + more_next) * weight;
            above = row;
            more_above = more_row;
            below = next;
            more_below = more_next;
        }
        narrow_both(a, b, end - i, to + i);
        narrow_both(c, d, end - i, to + stride + i);
    }
}

template <class Words>
void blur_by_words(std::uint8_t* bytes, int width, int height, const std::int16_t* across, int across_taps,
                   const std::int16_t* down, int down_taps, std::int16_t* rows) {
    constexpr std::size_t kStep = Words::kCount;
    const std::size_t stride = 4 * static_cast<std::size_t>(width);
    const std::size_t pitch = (stride + 2 * kStep - 1) / (2 * kStep) * (2 * kStep);
    std::int16_t* line = rows + blur_margin(across_taps);
    std::int16_t* blurred = line + pitch + kBlurReach / 2 + blur_margin(across_taps);
    for (int y = 0; y < height; ++y) {
        const std::uint8_t* row = bytes + stride * static_cast<std::size_t>(y);
        std::size_t i = 0;
        for (; i + kStep <= stride; i += kStep) Words::widen(row + i).store(line + i);
        for (; i < stride; ++i) line[i] = static_cast<std::int16_t>(row[i] << 6);
        reflect_ends(line, width, across_taps);
        blur_across<Words>(line, stride, across, across_taps, blurred + pitch * static_cast<std::size_t>(y));
    }
    for (std::size_t strip = 0; strip < stride; strip += kStrip) {
        const std::size_t end = smaller(stride, strip + kStrip);
        for (int y = 0; y < height; ++y) {
            const std::int16_t* middle = blurred + pitch * static_cast<std::size_t>(y);
            std::uint8_t* to = bytes + stride * static_cast<std::size_t>(y);
            const auto step = static_cast<std::ptrdiff_t>(pitch);
            if (y >= down_taps && y + 1 + down_taps < height) {
                blur_two_down<Words>(middle, step, strip, end, down, down_taps, to, stride);
                ++y;
            } else {
                blur_down<Words>(middle, strip, end, down, down_taps, to,
                                 [&](int k) { return (reflected(y + k, height) - y) * step; });
            }
        }
    }
}
