#include "augment/warp.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "augment/augment_kernels.hpp"
#include "view/exact_math.hpp"

namespace headrace {
namespace {

// Returns half of a Gaussian kernel of int(8 sigma + 1) taps, one more if that is even, centre first.
std::vector<float> half_gaussian(double sigma) {
    const int reach = sigma > 0 ? static_cast<int>(8 * sigma + 1) / 2 : 0;
    std::vector<double> weights;
    double sum = 0;
    for (int k = 0; k <= reach; ++k) {
        const double x = k == 0 ? 0 : k / sigma;
        weights.push_back(exact_exp(-0.5 * x * x));
        sum += k == 0 ? weights[0] : 2 * weights[static_cast<std::size_t>(k)];
    }
    std::vector<float> half;
    for (const double weight : weights) half.push_back(static_cast<float>(weight / sum));
    return half;
}

// Reflects an index without repeating the edge pixel.
int reflected(int at, int size) {
    if (size == 1) return 0;
    while (at < 0 || at >= size) at = at < 0 ? -at : 2 * size - 2 - at;
    return at;
}

template <std::size_t Bytes>
void take(const std::int32_t* numbers, int count, const std::uint8_t* from, std::uint8_t* to) {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i)
        std::memcpy(to + Bytes * static_cast<std::size_t>(i), from + Bytes * static_cast<std::size_t>(numbers[i]),
                    Bytes);
}

void take(const WarpKernels& kernels, std::size_t bytes, const std::int32_t* numbers, int count,
          const std::uint8_t* from, std::uint8_t* to) {
    switch (bytes) {
        case 1:
            return take<1>(numbers, count, from, to);
        case 2:
            return take<2>(numbers, count, from, to);
        case 4:
            return kernels.take_pixels(numbers, count, from, to);
        case 6:
            return take<6>(numbers, count, from, to);
        case 8:
            return take<8>(numbers, count, from, to);
        default:
            return take<12>(numbers, count, from, to);
    }
}

}  // namespace

const WarpKernels& warp_kernels(Level level) {
    switch (augment_level(level)) {
#if defined(__x86_64__)
        case Level::avx512:
            return warp_kernels_avx512();
        case Level::avx2:
            return warp_kernels_avx2();
#endif
        case Level::portable:
            return warp_kernels_portable();
        default:
            return warp_kernels_scalar();
    }
}

void Warper::start(const DrawnOp& op, int width, int height) {
    op_ = op;
    width_ = width;
    height_ = height;
    const auto row = static_cast<std::size_t>(width + kWarpBlock);
    xs_.resize(row);
    ys_.resize(row);
    numbers_.resize(row);
    if (op.kind == kElastic) displace();
}

Warper::Turn Warper::turn_at(int x, int y) const {
    const double* m = op_.args + 4;
    double a = m[0], b = m[1], c = m[3], d = m[4];  // d(source) / d(output), up to a positive factor
    if (op_.kind == kPerspective) {
        const double at_x = x + 0.5, at_y = y + 0.5;
        const auto row = [&](int k) { return m[k] * at_x + m[k + 1] * at_y + m[k + 2]; };
        const double across = row(0), down = row(3), by = row(6);
        a = m[0] * by - across * m[6];
        b = m[1] * by - across * m[7];
        c = m[3] * by - down * m[6];
        d = m[4] * by - down * m[7];
    } else if (op_.kind == kElastic) {
        const int left = std::max(0, x - 1), right = std::min(width_ - 1, x + 1);
        const int above = std::max(0, y - 1), below = std::min(height_ - 1, y + 1);
        const auto slope = [&](const std::vector<float>& field, bool is_down) {
            const auto at = [&](int column, int line) {
                return static_cast<double>(field[static_cast<std::size_t>(line) * static_cast<std::size_t>(width_) +
                                                 static_cast<std::size_t>(column)]);
            };
            const int steps = is_down ? below - above : right - left;
            if (steps == 0) return 0.0;
            return (is_down ? at(x, below) - at(x, above) : at(right, y) - at(left, y)) / steps;
        };
        a = 1 + slope(across_, false);
        b = slope(across_, true);
        c = slope(down_, false);
        d = 1 + slope(down_, true);
    }
    // Orthogonal factor of the polar decomposition of two rows.
    const bool mirrors = a * d - b * c < 0;
    const double first = mirrors ? a - d : a + d, second = mirrors ? b + c : b - c;
    const double length = std::sqrt(first * first + second * second);
    if (!(length > 0)) return {1, 0, 0, 1};
    const double cosine = first / length, sine = second / length;
    return mirrors ? Turn{cosine, sine, sine, -cosine} : Turn{cosine, sine, -sine, cosine};
}

void Warper::follow(double& x, double& y) const {
    if (op_.kind == kElastic) {  // solves place + displacement(place) = source
        const double from_x = x, from_y = y;
        for (int turn = 0; turn < 12; ++turn) {
            const Displacement by = displacement_at(x, y);
            x = from_x - by.x;
            y = from_y - by.y;
        }
        return;
    }
    const double* m = op_.args + 4;  // times the inverse, up to the determinant
    const double across = (m[4] * m[8] - m[5] * m[7]) * x + (m[2] * m[7] - m[1] * m[8]) * y + m[1] * m[5] - m[2] * m[4];
    const double down = (m[5] * m[6] - m[3] * m[8]) * x + (m[0] * m[8] - m[2] * m[6]) * y + m[2] * m[3] - m[0] * m[5];
    const double by = (m[3] * m[7] - m[4] * m[6]) * x + (m[1] * m[6] - m[0] * m[7]) * y + m[0] * m[4] - m[1] * m[3];
    x = across / by;
    y = down / by;
}

// Interpolates between pixel centres, which are at half-integers.
Warper::Displacement Warper::displacement_at(double x, double y) const {
    if (!std::isfinite(x) || !std::isfinite(y)) return {0, 0};
    const double at_x = std::clamp(x - 0.5, 0.0, width_ - 1.0), at_y = std::clamp(y - 0.5, 0.0, height_ - 1.0);
    const auto column = static_cast<std::size_t>(at_x), line = static_cast<std::size_t>(at_y);
    const auto right = std::min(column + 1, static_cast<std::size_t>(width_ - 1));
    const auto below = std::min(line + 1, static_cast<std::size_t>(height_ - 1));
    const double share_x = at_x - static_cast<double>(column), share_y = at_y - static_cast<double>(line);
    const auto between = [&](const std::vector<float>& field) {
        const auto at = [&](std::size_t row, std::size_t place) {
            return static_cast<double>(field[row * static_cast<std::size_t>(width_) + place]);
        };
        const double top = at(line, column) + (at(line, right) - at(line, column)) * share_x;
        const double low = at(below, column) + (at(below, right) - at(below, column)) * share_x;
        return top + (low - top) * share_y;
    };
    return {between(across_), between(down_)};
}

void Warper::picture(std::uint8_t* from, std::uint8_t* to) {
    const double* p = op_.args;
    std::uint8_t bytes[4] = {0, 0, 0, 0};
    for (int c = 0; c < 3; ++c) bytes[c] = static_cast<std::uint8_t>(round_half_even(std::clamp(p[1 + c], 0.0, 255.0)));
    if (p[0] == 0 || (by_rows() && std::floor(p[6]) == p[6] && std::floor(p[9]) == p[9] && p[5] == 0)) {
        std::memcpy(from + 4 * pixels(), bytes, 4);
        return nearest(4, from, to);
    }
    std::uint32_t fill;
    std::memcpy(&fill, bytes, 4);
    for (int y = 0; y < height_; ++y) {
        find_row(y);
        kernels_->bilinear(from, width_, height_, xs_.data(), ys_.data(), width_, fill,
                           to + 4 * static_cast<std::size_t>(y) * static_cast<std::size_t>(width_));
    }
}

void Warper::nearest(std::size_t bytes, const std::uint8_t* from, std::uint8_t* to) {
    if (by_rows()) return copy_rows(bytes, from, to);
    for (int y = 0; y < height_; ++y) {
        find_numbers(y);
        take(*kernels_, bytes, numbers_.data(), width_, from,
             to + bytes * static_cast<std::size_t>(y) * static_cast<std::size_t>(width_));
    }
}

// True if each row is a part of one source row: for translations, and for shears along x.
bool Warper::by_rows() const {
    const double* m = op_.args + 4;
    return op_.kind == kAffine && m[0] == 1 && m[3] == 0 && m[4] == 1 && std::isfinite(m[1] + m[2] + m[5]);
}

void Warper::copy_rows(std::size_t bytes, const std::uint8_t* from, std::uint8_t* to) const {
    const double* m = op_.args + 4;
    const std::uint8_t* outside = from + bytes * pixels();
    for (int y = 0; y < height_; ++y) {
        const double above = std::floor(y + m[5] + 0.5);
        const double shift = std::clamp(std::floor(m[1] * (y + 0.5) + m[2] + 0.5), -1.0 * width_, 1.0 * width_);
        const bool is_inside = above >= 0 && above < height_;
        const int begin = is_inside ? static_cast<int>(std::max(0.0, -shift)) : width_;
        const int end = is_inside ? static_cast<int>(std::min(1.0 * width_, width_ - shift)) : width_;
        const auto fill = [&](int first, int last) {
            for (int x = first; x < last; ++x) std::memcpy(to + bytes * static_cast<std::size_t>(x), outside, bytes);
        };
        fill(0, begin);
        if (begin < end) {
            const auto first = static_cast<std::size_t>(above) * static_cast<std::size_t>(width_) +
                               static_cast<std::size_t>(begin + static_cast<int>(shift));
            std::memcpy(to + bytes * static_cast<std::size_t>(begin), from + bytes * first,
                        bytes * static_cast<std::size_t>(end - begin));
        }
        fill(std::max(begin, end), width_);
        to += bytes * static_cast<std::size_t>(width_);
    }
}

void Warper::find_numbers(int y) {
    if (op_.kind == kAffine) {
        const AffineRow row = affine_row(y);
        return kernels_->nearest_affine(row.from, row.step, width_, width_, height_, numbers_.data());
    }
    find_row(y);
    kernels_->nearest(xs_.data(), ys_.data(), width_, width_, height_, numbers_.data());
}

Warper::AffineRow Warper::affine_row(int y) const {
    const double* m = op_.args + 4;
    const auto at = [&](int row) { return m[row] * 0.5 + m[row + 1] * (y + 0.5) + m[row + 2]; };
    return {{static_cast<float>(at(0) - 0.5), static_cast<float>(at(3) - 0.5)},
            {static_cast<float>(m[0]), static_cast<float>(m[3])}};
}

void Warper::find_row(int y) {
    const double* m = op_.args + 4;
    const double down = y + 0.5;
    if (op_.kind == kElastic) {
        const std::size_t first = static_cast<std::size_t>(y) * static_cast<std::size_t>(width_);
        return kernels_->displaced(across_.data() + first, down_.data() + first, static_cast<float>(y), width_,
                                   xs_.data(), ys_.data());
    }
    if (op_.kind == kAffine) {
        const AffineRow row = affine_row(y);
        return kernels_->affine(row.from, row.step, width_, xs_.data(), ys_.data());
    }
    const auto at = [&](int row) { return m[row] * 0.5 + m[row + 1] * down + m[row + 2]; };
    const float from[] = {static_cast<float>(at(0)), static_cast<float>(at(3)), static_cast<float>(at(6))};
    const float step[] = {static_cast<float>(m[0]), static_cast<float>(m[3]), static_cast<float>(m[6])};
    kernels_->perspective(from, step, width_, xs_.data(), ys_.data());
}

// Blurs noise per pixel and multiplies by alpha / 2: torchvision's displacement, alpha / size, is on a grid of -1 to 1.
void Warper::displace() {
    const double* p = op_.args + 4;
    const bool same = std::equal(p, p + 6, displaced_.args + 4) && width_ == displaced_width_;
    if (displaced_.kind == kElastic && same && height_ == displaced_height_) return;  // of another field
    displaced_ = op_;
    displaced_width_ = width_;
    displaced_height_ = height_;
    const std::size_t count = pixels() + pixels() % 2;
    across_.resize(count + kWarpBlock);
    down_.resize(count + kWarpBlock);
    kernels_->noise(static_cast<std::uint64_t>(p[4]) << 32 | static_cast<std::uint64_t>(p[5]), count, across_.data(),
                    down_.data());
    smooth(across_, p[2], p[3], p[0]);
    smooth(down_, p[2], p[3], p[1]);
}

void Warper::smooth(std::vector<float>& field, double sigma_x, double sigma_y, double alpha) {
    std::vector<float> across = half_gaussian(sigma_x);
    const std::vector<float> down = half_gaussian(sigma_y);
    for (float& weight : across) weight = weight * static_cast<float>(alpha / 2);
    const int reach = static_cast<int>(across.size()) - 1, rim = static_cast<int>(down.size()) - 1;
    const auto width = static_cast<std::size_t>(width_);
    line_.resize(width + 2 * across.size());
    std::uint8_t* const padded =
        padded_.reserve_aligned(sizeof(float) * width * static_cast<std::size_t>(height_ + 2 * rim));
    float* const first = reinterpret_cast<float*>(padded) + width * static_cast<std::size_t>(rim);
    for (int y = 0; y < height_; ++y) {
        const float* row = field.data() + width * static_cast<std::size_t>(y);
        float* const middle = line_.data() + reach;
        std::copy(row, row + width, middle);
        for (int k = 1; k <= reach; ++k) {
            middle[-k] = row[reflected(-k, width_)];
            middle[width_ - 1 + k] = row[reflected(width_ - 1 + k, width_)];
        }
        kernels_->symmetric_sum(middle, 1, across.data(), reach + 1, width_,
                                first + width * static_cast<std::size_t>(y));
    }
    const auto row_at = [&](int y) { return first + static_cast<std::ptrdiff_t>(width) * y; };
    for (int k = 1; k <= rim; ++k) {
        std::copy_n(row_at(reflected(-k, height_)), width, row_at(-k));
        std::copy_n(row_at(reflected(height_ - 1 + k, height_)), width, row_at(height_ - 1 + k));
    }
    for (int y = 0; y < height_; ++y) {
        kernels_->symmetric_sum(row_at(y), static_cast<std::ptrdiff_t>(width), down.data(), rim + 1, width_,
                                field.data() + width * static_cast<std::size_t>(y));
    }
}

}  // namespace headrace
