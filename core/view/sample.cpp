#include "view/sample.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/fault.hpp"
#include "rng/stream.hpp"
#include "view/canvas.hpp"
#include "view/exact_math.hpp"

namespace headrace {
namespace {

std::string extent(int width, int height) {
    return std::to_string(width) + " x " + std::to_string(height) + " (width x height)";
}

struct Size {
    int width, height;
};

int rounded(double value) { return static_cast<int>(round_half_even(value)); }
int offset_below(std::uint64_t bits, int n) { return static_cast<int>(below(bits, static_cast<std::uint64_t>(n))); }

// torchvision's fallback after ten failures: the largest crop with a ratio within range, at least one pixel.
Size central_crop_size(const Canvas& canvas, double ratio_low, double ratio_high) {
    const int width = canvas.x.size(), height = canvas.y.size();
    const double ratio = static_cast<double>(width) / height;
    if (ratio < ratio_low) return {width, std::max(1, rounded(width / ratio_low))};
    if (ratio > ratio_high) return {std::max(1, rounded(height * ratio_high)), height};
    return {width, height};
}

// Crops by a random fraction of the area and a random aspect ratio; attempt a uses draws 2a and 2a + 1.
void random_resized_crop(Canvas& canvas, const ViewOp& op, const Stream& stream) {
    const int width = canvas.x.size(), height = canvas.y.size();
    const double area = static_cast<double>(width) * height;
    const double log_low = exact_log(op.p[4]), log_high = exact_log(op.p[5]);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const Draw shape = stream.at(static_cast<std::uint8_t>(2 * attempt));
        const double target = area * uniform(shape.first, op.p[2], op.p[3]);
        const double ratio = exact_exp(uniform(shape.second, log_low, log_high));
        const double w = round_half_even(std::sqrt(target * ratio)), h = round_half_even(std::sqrt(target / ratio));
        if (!(w > 0 && w <= width && h > 0 && h <= height)) continue;
        const Draw place = stream.at(static_cast<std::uint8_t>(2 * attempt + 1));
        const Size crop{static_cast<int>(w), static_cast<int>(h)};
        const int top = offset_below(place.first, height - crop.height + 1);
        const int left = offset_below(place.second, width - crop.width + 1);
        return canvas.crop(left, top, crop.width, crop.height);
    }
    const Size crop = central_crop_size(canvas, op.p[4], op.p[5]);
    canvas.crop((width - crop.width) / 2, (height - crop.height) / 2, crop.width, crop.height);
}

// int(a * b / c) with the quotient rounded once, like Python's division of ints.
std::int64_t scaled(std::int64_t a, std::int64_t b, std::int64_t c) {
    return static_cast<std::int64_t>(static_cast<double>(a * b) / static_cast<double>(c));
}

void resize_short(Canvas& canvas, std::int64_t size, std::int64_t max_size) {
    const int width = canvas.x.size(), height = canvas.y.size();
    const bool upright = width <= height;
    std::int64_t short_side = size, long_side = scaled(size, std::max(width, height), std::min(width, height));
    if (max_size != 0 && long_side > max_size) {
        short_side = scaled(max_size, short_side, long_side);
        long_side = max_size;
    }
    if (short_side < 1 || long_side > kMaxSide)
        throw Fault(Code::unfit, "cannot resize an image of " + extent(width, height) + " to a short side of " +
                                     std::to_string(size) + ": the other side would be " + std::to_string(long_side) +
                                     " and the short one " + std::to_string(short_side));
    const int small = static_cast<int>(short_side), large = static_cast<int>(long_side);
    canvas.resize(upright ? small : large, upright ? large : small);
}

// Pads an axis that is too small (the odd pixel at its end), then crops to the centre.
void center_crop(Axis& axis, int size) {
    const int missing = std::max(0, size - axis.size());
    axis.pad(missing / 2, (missing + 1) / 2);
    axis.crop(rounded((axis.size() - size) / 2.0), size);
}

void random_crop(Canvas& canvas, const ViewOp& op, const Stream& stream) {
    const int height = static_cast<int>(op.p[0]), width = static_cast<int>(op.p[1]);
    canvas.x.pad(static_cast<int>(op.p[2]), static_cast<int>(op.p[4]));
    canvas.y.pad(static_cast<int>(op.p[3]), static_cast<int>(op.p[5]));
    if (op.p[6] != 0) {
        const int missing_x = std::max(0, width - canvas.x.size()), missing_y = std::max(0, height - canvas.y.size());
        canvas.x.pad(missing_x, missing_x);
        canvas.y.pad(missing_y, missing_y);
    }
    if (width > canvas.x.size() || height > canvas.y.size())
        throw Fault(Code::unfit, "RandomCrop of " + extent(width, height) + " from an image of " +
                                     extent(canvas.x.size(), canvas.y.size()) +
                                     ", padding included: resize first, or set pad_if_needed=True");
    const Draw place = stream.at(0);
    const int top = offset_below(place.first, canvas.y.size() - height + 1);
    const int left = offset_below(place.second, canvas.x.size() - width + 1);
    canvas.crop(left, top, width, height);
}

// Resizes to the largest size that fits with the image's aspect ratio; the other side is rounded, at least one pixel.
void letterbox(Canvas& canvas, int height, int width) {
    const double image_width = canvas.x.size(), image_height = canvas.y.size();
    if (width * image_height <= height * image_width)
        canvas.resize(width, std::clamp(rounded(image_height * width / image_width), 1, height));
    else
        canvas.resize(std::clamp(rounded(image_width * height / image_height), 1, width), height);
    center_crop(canvas.x, width);
    center_crop(canvas.y, height);
}

// Returns the offset of one of `count` windows spread evenly from edge to edge; a single window is centred.
int spread_offset(int room, int number, int count) {
    return count == 1 ? rounded(room / 2.0) : rounded(static_cast<double>(room) * number / (count - 1));
}

void check_fits(const Canvas& canvas, const char* what, int width, int height) {
    if (width <= canvas.x.size() && height <= canvas.y.size()) return;
    throw Fault(Code::unfit, std::string(what) + " of " + extent(width, height) + " from an image of " +
                                 extent(canvas.x.size(), canvas.y.size()) + ": resize first");
}

// Four corners, row by row, then the centre.
void five_crop(Canvas& canvas, int height, int width, int copy) {
    check_fits(canvas, "FiveCrop", width, height);
    if (copy < 0 || copy > 4) throw Fault(Code::view, "FiveCrop has no copy " + std::to_string(copy));
    const int right = canvas.x.size() - width, bottom = canvas.y.size() - height;
    if (copy == 4) return canvas.crop(rounded(right / 2.0), rounded(bottom / 2.0), width, height);
    canvas.crop(copy % 2 == 0 ? 0 : right, copy < 2 ? 0 : bottom, width, height);
}

void tile(Canvas& canvas, const ViewOp& op, int height, int width, int copy) {
    check_fits(canvas, "Tiles", width, height);
    const int rows = static_cast<int>(op.p[2]), columns = static_cast<int>(op.p[3]);
    if (copy < 0 || copy >= rows * columns) throw Fault(Code::view, "Tiles have no copy " + std::to_string(copy));
    canvas.crop(spread_offset(canvas.x.size() - width, copy % columns, columns),
                spread_offset(canvas.y.size() - height, copy / columns, rows), width, height);
}

// Returns the number of quarters whose cumulative probability first exceeds the draw.
int drawn_quarters(const ViewOp& op, double draw) {
    int quarters = 0;
    double sum = 0;
    for (int k = 0; k < 4 && draw >= sum; sum += op.p[k++])
        if (op.p[k] > 0) quarters = k;
    return quarters;
}

void apply(Canvas& canvas, const ViewOp& op, const Stream& stream, int copy) {
    const int height = static_cast<int>(op.p[0]), width = static_cast<int>(op.p[1]);
    switch (op.kind) {
        case kRandomResizedCrop:
            random_resized_crop(canvas, op, stream);
            return canvas.resize(width, height);
        case kResizeShort:
            return resize_short(canvas, static_cast<int>(op.p[0]), static_cast<int>(op.p[1]));
        case kResize:
            return canvas.resize(width, height);
        case kCenterCrop:
            center_crop(canvas.x, width);
            return center_crop(canvas.y, height);
        case kRandomCrop:
            return random_crop(canvas, op, stream);
        case kLetterbox:
            return letterbox(canvas, height, width);
        case kHorizontalFlip:
        case kVerticalFlip:
            if (unit_interval(stream.at(0).first) < op.p[0]) (op.kind == kHorizontalFlip ? canvas.x : canvas.y).flip();
            return;
        case kQuarterTurn:
            return canvas.turn(drawn_quarters(op, unit_interval(stream.at(0).first)));
        case kTenCrop:
            if (copy >= 5) (op.p[2] != 0 ? canvas.y : canvas.x).flip();
            return five_crop(canvas, height, width, copy >= 5 ? copy - 5 : copy);
        case kFiveCrop:
            return five_crop(canvas, height, width, copy);
        case kTiles:
            return tile(canvas, op, height, width, copy);
        default:
            throw Fault(Code::view, "unknown kind of view op: " + std::to_string(op.kind));
    }
}

}  // namespace

View sample_view(std::span<const ViewOp> program, std::uint64_t key, std::uint64_t id, std::uint32_t pass,
                 std::uint16_t dataset, int source_width, int source_height, int copy) {
    Canvas canvas(source_width, source_height);
    for (std::size_t stage = 0; stage < program.size(); ++stage)
        apply(canvas, program[stage], Stream{key, id, pass, dataset, static_cast<std::uint8_t>(stage)}, copy);
    return canvas.view();
}

}  // namespace headrace
