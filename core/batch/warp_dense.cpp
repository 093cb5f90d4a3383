// Geometric operations of a sample on its masks, depth and normals.
#include <bit>
#include <cstring>
#include <vector>

#include "batch/sample_worker.hpp"

namespace headrace {

namespace {

float half_value(std::uint16_t bits) {
    const std::uint32_t size = bits & 0x7FFFU, sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    if (size >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (size & 0x3FFU) << 13);
    if (size < 0x400U) return (sign != 0 ? -1.0F : 1.0F) * static_cast<float>(size) * 0x1p-24F;
    return std::bit_cast<float>(sign | ((size << 13) + 0x38000000U));
}

float load_float(DType dtype, const std::uint8_t* at) {
    if (dtype == DType::float32) {
        float value;
        std::memcpy(&value, at, 4);
        return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, at, 2);
    return dtype == DType::float16 ? half_value(bits) : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Value for coordinates outside, in the batch's type, at most 12 bytes.
struct Outside {
    std::uint8_t bytes[16] = {};
};

Outside outside_of(const ImageField& field, const Kernels& kernels) {
    Outside outside;
    if (field.content == Content::mask) std::memcpy(outside.bytes, &field.mask.ignore, 8);  // lowest byte first
    if (field.content == Content::depth) {
        const auto invalid = static_cast<float>(field.depth.invalid);
        store_floats(kernels, field.depth.dtype, &invalid, 1, outside.bytes);
    }
    return outside;
}

}  // namespace

void SampleWorker::warp_dense(const ImageField& field, int sample) {
    if (field.content == Content::picture || chain_.empty()) return;
    const std::int64_t since = now_ns();
    stage_ = Stage::augment;
    std::uint8_t* const out = field.out + static_cast<std::size_t>(sample) * field.bytes();
    std::uint8_t* const valid =
        field.valid == nullptr ? nullptr : field.valid + static_cast<std::size_t>(sample) * field.pixels();
    const Outside outside = outside_of(field, *kernels_), not_valid;
    for (const DrawnOp& op : chain_) {
        warper_.start(op, field.format.width, field.format.height);
        warp_values(field, field.bytes() / field.pixels(), outside.bytes, out);
        if (valid != nullptr) warp_values(field, 1, not_valid.bytes, valid);
        if (field.content == Content::normals) turn_normals(field, out);
    }
    spent(Stage::augment, since, field.bytes());
}

void SampleWorker::warp_values(const ImageField& field, std::size_t bytes, const std::uint8_t* outside,
                               std::uint8_t* values) {
    const std::size_t all = bytes * field.pixels();
    std::uint8_t* const from = unwarped_.reserve(all + bytes);
    std::memcpy(from, values, all);
    std::memcpy(from + all, outside, bytes);
    warper_.nearest(bytes, from, values);
}

// Rotates vectors, preserving length and z. If y points up, the rotation is reversed.
void SampleWorker::turn_normals(const ImageField& field, std::uint8_t* normals) {
    const std::size_t bytes = size_of(field.format.dtype), row = 3 * static_cast<std::size_t>(field.format.width);
    const double sign = field.y_up ? -1 : 1;
    turned_.resize(row + 64);
    for (int y = 0; y < field.format.height; ++y, normals += row * bytes) {
        for (int x = 0; x < field.format.width; ++x) {
            float* const vector = turned_.data() + 3 * static_cast<std::size_t>(x);
            for (std::size_t k = 0; k < 3; ++k)
                vector[k] = load_float(field.format.dtype, normals + bytes * (3 * static_cast<std::size_t>(x) + k));
            const Warper::Turn turn = warper_.turn_at(x, y);
            const double across = vector[0], down = vector[1];
            vector[0] = static_cast<float>(turn.xx * across + sign * turn.yx * down);
            vector[1] = static_cast<float>(sign * turn.xy * across + turn.yy * down);
        }
        store_floats(*kernels_, field.format.dtype, turned_.data(), static_cast<int>(row), normals);
    }
}

}  // namespace headrace
