#include "augment/augmenter.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "common/fault.hpp"
#include "view/exact_math.hpp"

namespace headrace {
namespace {

// Returns half of a Gaussian kernel of `size` taps, centre first, in 1/32768: the full kernel sums to one. Taps that
// round to zero are omitted.
std::vector<std::int16_t> gaussian_taps(int size, double sigma) {
    std::vector<double> weights;
    double sum = 0;
    for (int k = 0; k <= size / 2; ++k) {
        const double x = k / sigma;
        weights.push_back(x * x > 100 ? 0 : exact_exp(-0.5 * x * x));
        sum += k == 0 ? weights[0] : 2 * weights[static_cast<std::size_t>(k)];
    }
    std::vector<std::int16_t> taps;
    int rest = 1 << 15;
    for (std::size_t k = 1; k < weights.size(); ++k) {
        const int tap = static_cast<int>(round_half_even(weights[k] / sum * (1 << 15)));
        if (tap == 0) break;
        taps.push_back(static_cast<std::int16_t>(tap));
        rest -= 2 * tap;
    }
    taps.insert(taps.begin(), static_cast<std::int16_t>(std::min(rest, 32767)));
    return taps;
}

}  // namespace

void Augmenter::start(const Placement& place, const std::uint8_t* fill) {
    place_ = place;
    width_ = place.width;
    height_ = place.height;
    canvas_ = memory_.reserve_aligned(4 * (pixels() + kRowSlack));
    if (!place.pads()) return;
    const std::uint8_t bytes[4] = {fill[0], fill[1], fill[2], 0};
    std::uint32_t pixel;
    std::memcpy(&pixel, bytes, 4);
    auto* const canvas = reinterpret_cast<std::uint32_t*>(canvas_);
    const auto pad = [&](std::size_t first, std::size_t last) { std::fill(canvas + first, canvas + last, pixel); };
    std::size_t padded = 0;
    for (int y = 0; y < height_; ++y) {  // pad up to each row of the window, in canvas order
        const int row = place.canvas_row(y) - place.inner_y;
        if (row < 0 || row >= place.inner_height || place.inner_width == 0) continue;
        const std::size_t first = place.pixel(row);
        pad(padded, first);
        padded = first + static_cast<std::size_t>(place.inner_width);
    }
    pad(padded, pixels());
}

void Augmenter::write(int y, const std::uint8_t* rgbx) {
    std::memcpy(canvas_ + 4 * place_.pixel(y), rgbx, 4 * static_cast<std::size_t>(place_.inner_width));
}

void Augmenter::load(const Format& format, const std::uint8_t* bytes) {
    width_ = format.width;
    height_ = format.height;
    canvas_ = memory_.reserve_aligned(4 * (pixels() + kRowSlack));
    auto* to = reinterpret_cast<std::uint32_t*>(canvas_);
    const std::size_t count = pixels();
    if (format.channels == 1) {
        for (std::size_t i = 0; i < count; ++i) to[i] = bytes[i] * 0x010101U;
    } else if (format.planar) {
        const std::uint8_t *red = bytes, *green = bytes + count, *blue = green + count;
        for (std::size_t i = 0; i < count; ++i)
            to[i] = red[i] | static_cast<std::uint32_t>(green[i]) << 8 | static_cast<std::uint32_t>(blue[i]) << 16;
    } else {
        // Four bytes at a time, with the next pixel's red as X; the last pixel has no next pixel.
        for (std::size_t i = 0; i + 1 < count; ++i) std::memcpy(to + i, bytes + 3 * i, 4);
        std::memcpy(to + count - 1, bytes + 3 * (count - 1), 3);
    }
}

void Augmenter::run(const Chain& chain, bool grey) {
    for (const DrawnOp& op : chain) apply(op, grey);
}

void Augmenter::apply(const DrawnOp& op, bool grey) {
    const double* p = op.args;
    const auto factor = static_cast<float>(p[0]);
    switch (op.kind) {
        case kBrightness:
            return kernels_->brightness(canvas_, pixels(), factor);
        case kContrast:
            return contrast(factor, grey);
        case kSaturation:
            if (!grey) kernels_->saturation(canvas_, pixels(), factor);
            return;
        case kHue:
            if (!grey) kernels_->hue(canvas_, pixels(), factor);
            return;
        case kGrayscale:
            if (!grey) kernels_->grayscale(canvas_, pixels());
            return;
        case kInvert:
            return kernels_->invert(canvas_, pixels());
        case kSolarize:
            return kernels_->solarize(canvas_, pixels(), static_cast<int>(std::ceil(std::clamp(p[0], 0.0, 256.0))));
        case kSolarizeAdd:
            return solarize_add(static_cast<int>(p[0]), static_cast<int>(p[1]));
        case kPosterize: {
            const double whole = p[1] == 0 ? round_half_even(p[0]) : p[1] == 1 ? std::floor(p[0]) : std::ceil(p[0]);
            const int bits = static_cast<int>(std::clamp(whole, 0.0, 8.0));
            return kernels_->posterize(canvas_, pixels(), static_cast<std::uint8_t>(0xFF << (8 - bits)));
        }
        case kAutoContrast:
            return autocontrast();
        case kEqualize:
            return equalize();
        case kSharpness:
            return sharpness(factor);
        case kGaussianBlur:
            return blur(p[0], static_cast<int>(p[1]), static_cast<int>(p[2]));
        case kPermuteChannels:
            return kernels_->permute(canvas_, pixels(), static_cast<int>(p[0]), static_cast<int>(p[1]),
                                     static_cast<int>(p[2]));
        case kAffine:
        case kPerspective:
        case kElastic:
            return warp(op);
        case kErase:
            return;  // runs later, on the batch's values
        case kMixBegin:
            sums_.assign(4 * pixels(), 0.0F);
            original_.assign(canvas_, canvas_ + 4 * pixels());
            branch_ = 0;
            return;
        case kMixBranch:
            add_branch();
            std::memcpy(canvas_, original_.data(), original_.size());
            branch_ = p[0];
            return;
        case kMixEnd:
            add_branch();
            return kernels_->mix(original_.data(), pixels(), factor, sums_.data(), canvas_);
        default:
            throw Fault(Code::view, "unknown operation on pixels: " + std::to_string(op.kind));
    }
}

void Augmenter::add_branch() {
    if (branch_ > 0) kernels_->add_weighted(canvas_, pixels(), static_cast<float>(branch_), sums_.data());
}

void Augmenter::contrast(float factor, bool grey) {
    std::uint64_t sum = 0;
    if (grey) {
        for (std::size_t i = 0; i < pixels(); ++i) sum += canvas_[4 * i];
    } else {
        sum = kernels_->luma_sum(canvas_, pixels());
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(pixels());
    kernels_->contrast(canvas_, pixels(), factor, static_cast<float>(mean));
}

// Stretches each channel to 0…255; a constant channel is unchanged.
void Augmenter::autocontrast() {
    std::uint8_t low[3], high[3];
    kernels_->range(canvas_, pixels(), low, high);
    std::array<std::uint8_t, 3 * 256> tables{};
    for (std::size_t channel = 0; channel < 3; ++channel) {
        const bool flat = low[channel] == high[channel];
        const float by = flat ? 1.0F : static_cast<float>(high[channel] - low[channel]) * (1.0F / 255.0F);
        const float from = flat ? 0.0F : static_cast<float>(low[channel]);
        for (std::size_t value = 0; value < 256; ++value) {
            const float stretched = (static_cast<float>(value) - from) / by;
            tables[256 * channel + value] = static_cast<std::uint8_t>(std::clamp(stretched, 0.0F, 255.0F));
        }
    }
    kernels_->lookup(canvas_, pixels(), tables.data());
}

// Equalizes like Pillow and torchvision: by the histogram of each channel, with its last non-empty bin excluded from
// the step.
void Augmenter::equalize() {
    std::array<std::uint32_t, 3 * 256> counts{};
    kernels_->histogram(canvas_, pixels(), counts.data());
    std::array<std::uint8_t, 3 * 256> tables{};
    for (std::size_t channel = 0; channel < 3; ++channel) {
        const std::uint32_t* count = counts.data() + 256 * channel;
        std::size_t last = 255;
        while (last > 0 && count[last] == 0) --last;
        const std::uint64_t step = (pixels() - count[last]) / 255;
        std::uint64_t below = 0;
        for (std::size_t value = 0; value < 256; ++value) {
            const std::uint64_t level = step == 0 ? value : std::min<std::uint64_t>(255, (below + step / 2) / step);
            tables[256 * channel + value] = static_cast<std::uint8_t>(level);
            below += count[value];
        }
    }
    kernels_->lookup(canvas_, pixels(), tables.data());
}

void Augmenter::sharpness(float factor) {
    if (width_ <= 2 || height_ <= 2) return;
    std::uint8_t* out = other_.reserve_aligned(4 * (pixels() + kRowSlack));
    kernels_->sharpness(canvas_, width_, height_, factor, out);
    std::swap(memory_, other_);
    canvas_ = out;
}

void Augmenter::warp(const DrawnOp& op) {
    std::uint8_t* out = other_.reserve_aligned(4 * (pixels() + kRowSlack));
    warper_.start(op, width_, height_);
    warper_.picture(canvas_, out);
    std::swap(memory_, other_);
    canvas_ = out;
}

void Augmenter::blur(double sigma, int across, int down) {
    const auto taps = gaussian_taps(across, sigma), rows = gaussian_taps(down, sigma);
    const std::size_t words = blur_scratch(width_, height_, static_cast<int>(taps.size()));
    auto* scratch = reinterpret_cast<std::int16_t*>(rows_.reserve_aligned(sizeof(std::int16_t) * words));
    kernels_->blur(canvas_, width_, height_, taps.data(), static_cast<int>(taps.size()), rows.data(),
                   static_cast<int>(rows.size()), scratch);
}

void Augmenter::solarize_add(int addend, int threshold) {
    std::array<std::uint8_t, 3 * 256> tables{};
    for (int value = 0; value < 256; ++value) {
        const int moved = value < threshold ? std::clamp(value + addend, 0, 255) : value;
        for (int channel = 0; channel < 3; ++channel)
            tables[static_cast<std::size_t>(256 * channel + value)] = static_cast<std::uint8_t>(moved);
    }
    kernels_->lookup(canvas_, pixels(), tables.data());
}

void Augmenter::erase(const Format& format, const DrawnOp& op, std::uint8_t* at) const {
    const double* p = op.args;
    const auto left = static_cast<std::size_t>(p[0]), top = static_cast<std::size_t>(p[1]),
               width = static_cast<std::size_t>(p[2]), height = static_cast<std::size_t>(p[3]);
    const auto channels = static_cast<std::size_t>(format.channels);
    const std::size_t planes = format.planar ? channels : 1, run = width * channels / planes;
    const std::size_t size = size_of(format.dtype),
                      row = size * static_cast<std::size_t>(format.width) * channels / planes;
    const bool noisy = p[7] != 0;
    if (width == 0) return;
    Noise noise(noise_key(p[8], p[9]));
    std::vector<float> line(width * channels);
    std::vector<std::uint8_t> stored(line.size() * size);
    for (std::size_t y = 0; y < height; ++y) {
        if (y == 0 || noisy) {  // constant rows are equal
            for (std::size_t x = 0; x < width; ++x)
                for (std::size_t channel = 0; channel < channels; ++channel)
                    line[planes > 1 ? channel * width + x : x * channels + channel] =
                        static_cast<float>(noisy ? noise.normal() : p[4 + channel]);
            if (format.dtype == DType::uint8) {
                for (std::size_t i = 0; i < line.size(); ++i)
                    stored[i] = static_cast<std::uint8_t>(std::clamp(line[i], 0.0F, 255.0F));
            } else {
                store_floats(*values_, format.dtype, line.data(), static_cast<int>(line.size()), stored.data());
            }
        }
        std::uint8_t* to = at + (top + y) * row + left * size * channels / planes;
        for (std::size_t plane = 0; plane < planes; ++plane)
            std::memcpy(to + plane * row * static_cast<std::size_t>(format.height), stored.data() + plane * run * size,
                        run * size);
    }
}

}  // namespace headrace
