#include "jpeg/baseline.hpp"

#include <algorithm>

namespace headrace {

namespace {

// MCUs decoded before their coefficients are transformed: few enough to fit in the L1 cache.
constexpr int kBatchMcus = 4;
constexpr int kPixelBytes = 4;

int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace

bool BaselineDecoder::begin(int first, int count, bool at_any_cost) {
    if (!entropy_.open(frame_, at_any_cost)) return false;
    count_ = count;
    mcus_across_ = ceil_div(frame_.width, frame_.mcu_width());
    mcus_before_ = first / frame_.mcu_width();
    mcus_inside_ = ceil_div(count, frame_.mcu_width());
    planes_.open(frame_, mcus_inside_);
    const int blocks = kBatchMcus * entropy_.blocks_per_mcu();
    coefficients_.resize(static_cast<std::size_t>(blocks) * kBlock + kBlockSlack);
    jobs_.resize(static_cast<std::size_t>(blocks));
    // The last MCU row is sent together with the previous row, which waited for its chroma.
    const std::size_t band = static_cast<std::size_t>(count) * (frame_.mcu_height() + 1);
    band_.resize(std::max(band_.size(), (band + kPixelSlack) * kPixelBytes));
    return true;
}

int BaselineDecoder::decode(int top, int bottom, RowSink& sink) {
    if (top >= bottom) return 0;
    const int height = frame_.mcu_height(), context = down(frame_.made()) - 1;
    // With subsampled chroma, a row also needs the chroma row above or below.
    const int first = std::max(0, top - context) / height;
    const int last = std::min(bottom - 1 + context, frame_.height - 1) / height;
    if (!entropy_.skip(std::int64_t{first} * mcus_across_ + mcus_before_)) return 0;
    int done = top;
    for (int mcu_row = first; mcu_row <= last; ++mcu_row) {
        if (mcu_row > first && !entropy_.skip(mcus_across_ - mcus_inside_)) return done - top;
        if (!decode_mcu_row(mcu_row)) return done - top;
        const int until = mcu_row == last ? bottom : std::min(bottom, (mcu_row + 1) * height - context);
        if (until > done) send(done, until, sink);
        done = std::max(done, until);
    }
    return done - top;
}

bool BaselineDecoder::decode_mcu_row(int mcu_row) {
    for (int mcu = 0; mcu < mcus_inside_; mcu += kBatchMcus) {
        const int mcus = std::min(kBatchMcus, mcus_inside_ - mcu);
        if (!entropy_.decode(mcus, coefficients_.data())) return false;
        transform(mcu_row, mcu, mcus);
    }
    repeat_edges(mcu_row);
    return true;
}

void BaselineDecoder::transform(int mcu_row, int mcu, int mcus) {
    const int side = frame_.luma_side();
    BlockJob* luma = jobs_.data();
    BlockJob* const luma_end = luma + mcus * across(frame_.sampling) * down(frame_.sampling);
    BlockJob* chroma = luma_end;
    const std::int16_t* coefficients = coefficients_.data();
    for (int i = mcu; i < mcu + mcus; ++i) {
        for (int component = 0; component < frame_.components(); ++component) {
            const int wide = component == 0 ? across(frame_.sampling) : 1;
            const int high = component == 0 ? down(frame_.sampling) : 1;
            const std::size_t stride = planes_.stride(component);
            const std::uint16_t* quantisers = frame_.quantisers[component].data();
            const int size = component == 0 ? side : 8;
            std::uint8_t* out = planes_.row(component, mcu_row * high * size) + i * wide * size;
            BlockJob*& job = component == 0 ? luma : chroma;
            for (int block = 0; block < wide * high; ++block) {
                *job++ = {coefficients, quantisers, out + (block / wide) * size * stride + block % wide * size, stride};
                coefficients += kBlock;
            }
        }
    }
    const auto run = [](auto kernel, BlockJob* from, BlockJob* to) { kernel(from, static_cast<int>(to - from)); };
    run(frame_.halved ? kernels_.transform_half : kernels_.transform, jobs_.data(), luma_end);
    run(kernels_.transform, luma_end, chroma);
}

void BaselineDecoder::repeat_edges(int mcu_row) {
    const int width = ceil_div(count_, across(frame_.made()));
    for (int component = 1; component < frame_.components(); ++component) {
        for (int y = 8 * mcu_row; y < 8 * mcu_row + 8; ++y) {
            std::uint8_t* row = planes_.row(component, y);
            row[-1] = row[0];
            row[width] = row[width - 1];
        }
    }
}

void BaselineDecoder::send(int top, int bottom, RowSink& sink) {
    const std::size_t stride = static_cast<std::size_t>(count_) * kPixelBytes;
    for (int y = top; y < bottom; ++y) {
        const PixelRow row = pixel_row(y, band_.data() + (y - top) * stride);
        kernels_.convert[static_cast<int>(frame_.made())](row);
    }
    sink.take(band_.data(), stride, bottom - top);
}

PixelRow BaselineDecoder::pixel_row(int y, std::uint8_t* out) {
    PixelRow row{planes_.row(0, y), nullptr, nullptr, nullptr, nullptr, count_, y % 2, out};
    if (frame_.components() == 1) return row;
    const int high = down(frame_.made()), near = y / high;
    const int beside = y % 2 == 0 ? near - 1 : near + 1;
    const int far = high == 1 ? near : std::clamp(beside, 0, ceil_div(frame_.height, high) - 1);
    row.cb = planes_.row(1, near);
    row.cb_far = planes_.row(1, far);
    row.cr = planes_.row(2, near);
    row.cr_far = planes_.row(2, far);
    return row;
}

}  // namespace headrace
