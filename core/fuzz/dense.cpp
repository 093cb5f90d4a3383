// Masks, depth and normals: for any numbers and view, each pixel of the batch follows its definition from the source,
// padding is padding, quantiles equal those of sorted numbers, and nothing is written outside the output.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "batch/sample_worker.hpp"
#include "common/fault.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"
#include "fuzz/views.hpp"
#include "fuzz/workers.hpp"

namespace headrace::fuzz {
namespace {

constexpr int kMostPixels = 1 << 12;

struct Source {
    Size size;
    PixelType type;
    int channels;
    std::vector<std::uint8_t> bytes;

    Memory memory() const { return {bytes.data(), bytes.size(), size.width, size.height, channels, type}; }
    double at(int x, int y, int channel) const {
        const std::size_t i = (static_cast<std::size_t>(y) * size.width + x) * channels + channel;
        if (type == PixelType::u8) return bytes[i];
        std::uint16_t whole;
        float number;
        std::memcpy(&whole, bytes.data() + i * size_of(type), 2);
        if (type == PixelType::u16) return whole;
        std::memcpy(&number, bytes.data() + 4 * i, 4);
        return number;
    }
};

// Returns a source with few distinct values, or with arbitrary bits.
Source source_of(Input& input) {
    Source source{source_size(input), static_cast<PixelType>(input.byte() % 3), input.byte() % 3 == 0 ? 3 : 1, {}};
    const bool few = input.byte() % 2 == 0;
    std::uint64_t state = input.take<std::uint64_t>() | 1;
    const std::size_t count = static_cast<std::size_t>(source.size.width) * source.size.height * source.channels;
    source.bytes.resize(count * size_of(source.type));
    for (std::uint8_t& byte : source.bytes) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<std::uint8_t>(state >> 56) & (few ? 0x41 : 0xFF);
    }
    return source;
}

DepthFormat depth_of(Input& input) {
    DepthFormat f;
    f.scale = (1 + input.byte()) / 64.0;
    f.invalid = input.byte();
    if (input.byte() % 2 == 0) f.near = number(input);
    if (input.byte() % 2 == 0) f.far = number(input);
    f.quantiles = input.byte() % 2 == 0;
    f.low = input.byte() / 512.0;
    f.high = 0.5 + input.byte() / 510.0;
    f.range_low = static_cast<std::int8_t>(input.byte());
    f.range_high = static_cast<std::int8_t>(input.byte());
    f.clip = input.byte() % 2 == 0;
    return f;
}

double quantile(const std::vector<double>& sorted, double q) {
    const double rank = q * static_cast<double>(sorted.size() - 1), below = std::floor(rank);
    const double low = sorted[static_cast<std::size_t>(below)];
    if (rank == below) return low;
    return low + (sorted[static_cast<std::size_t>(below) + 1] - low) * (rank - below);
}

DepthMap map_of(const Source& source, const DepthFormat& f) {
    if (!f.quantiles) return {};
    std::vector<double> valid;
    for (int y = 0; y < source.size.height; ++y) {
        for (int x = 0; x < source.size.width; ++x) {
            if (f.valid(source.at(x, y, 0))) valid.push_back(source.at(x, y, 0) * f.scale);
        }
    }
    if (valid.empty()) return {};  // the batch is all padding, otherwise this would be a fault
    std::sort(valid.begin(), valid.end());
    return DepthMap::between(f, quantile(valid, f.low), quantile(valid, f.high));
}

int picked(double from, double to, int low, int high, int outputs, int i, bool backward) {
    Taps taps;
    taps.nearest(Filter::nearest, from, to, low, high, outputs, false, backward);
    return taps.start[i];
}

// Calls check(output pixel, source x, source y) for each pixel, with -1 for padding.
template <typename Check>
void for_each_pixel(const View& v, Check check) {
    for (int y = 0; y < v.height; ++y) {
        for (int x = 0; x < v.width; ++x) {
            const int column = (v.hflip ? v.width - 1 - x : x) - v.inner_x;
            const int row = (v.vflip ? v.height - 1 - y : y) - v.inner_y;
            const bool inside = column >= 0 && column < v.inner_width && row >= 0 && row < v.inner_height;
            int at[] = {
                inside ? picked(v.x0, v.x1, v.left, v.right, v.inner_width, column, v.hflip == kFlippedFirst) : -1,
                inside ? picked(v.y0, v.y1, v.top, v.bottom, v.inner_height, row, v.vflip == kFlippedFirst) : -1};
            if (v.transposed) std::swap(at[0], at[1]);
            check(static_cast<std::size_t>(y) * v.width + x, at[0], at[1]);
        }
    }
}

bool same(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || a == b; }

void check_depth(const ImageField& field, const Source& source, const View& view) {
    const auto* depths = reinterpret_cast<const float*>(field.out);
    const auto& [f, validity] = *field.as<DepthOptions>();
    const DepthMap map = map_of(source, f);
    for_each_pixel(view, [&](std::size_t pixel, int x, int y) {
        const double number = x < 0 ? NAN : source.at(x, y, 0);
        const bool valid = x >= 0 && f.valid(number);
        require(validity[pixel] == valid, "validity");
        const float expected = valid ? map(number * f.scale) : static_cast<float>(f.invalid);
        require(same(depths[pixel], expected), "depth");
    });
}

void check_mask(const ImageField& field, const Source& source, const View& view) {
    const auto* values = reinterpret_cast<const std::int32_t*>(field.out);
    const MaskOptions& f = *field.as<MaskOptions>();
    for_each_pixel(view, [&](std::size_t pixel, int x, int y) {
        const std::int64_t expected = x < 0 ? f.ignore : f.table[static_cast<std::size_t>(source.at(x, y, 0))];
        require(values[pixel] == expected, "mask");
    });
}

void check_normals(const ImageField& field, const Source& source, const View& view) {
    const auto* values = reinterpret_cast<const float*>(field.out);
    for_each_pixel(view, [&](std::size_t pixel, int x, int y) {
        for (int channel = 0; channel < 3; ++channel) {
            const bool turned = channel == 0 ? view.hflip : channel == 1 && view.vflip;
            float expected = 0;
            if (x >= 0) {
                const auto number =
                    static_cast<float>(source.at(x, y, view.transposed && channel < 2 ? 1 - channel : channel));
                expected = source.type == PixelType::u8 ? (number - 127.5F) / 127.5F : number;
                expected = turned ? -expected : expected;
            }
            const float got = values[3 * pixel + static_cast<std::size_t>(channel)];
            require(same(got, expected) || (std::isnan(got) && std::isnan(expected)), "normals");
        }
    });
}

const std::vector<std::int64_t>& classes() {
    static const std::vector<std::int64_t> table = [] {
        std::vector<std::int64_t> made(MaskFormat::kValues);
        for (std::size_t value = 0; value < made.size(); ++value) made[value] = 3 * static_cast<int>(value) - 70;
        return made;
    }();
    return table;
}

void run(Input input) {
    const std::uint64_t key = input.take<std::uint64_t>();
    ImageField field;
    const int content = input.byte() % 3;
    const MaskOptions mask{4, input.byte(), classes().data()};
    const DepthFormat depth = depth_of(input);
    field.format.dtype = DType::float32;
    field.format.fill_zero = true;
    for (int channel = 0; channel < 3; ++channel)
        field.format.subtract[channel] = field.format.divide[channel] = 127.5F;
    const Source source = source_of(input);
    field.memory = {source.memory()};
    View view;
    std::vector<ViewOp> program;
    try {
        program = parse_program(program_table(input));
        view = sample_view(program, key, 7, 0, 0, source.size.width, source.size.height);
    } catch (const Fault&) {
        return;
    }
    if (std::int64_t{view.width} * view.height > kMostPixels) return;
    field.format.width = view.width;
    field.format.height = view.height;
    // Exactly the size of the field, so that a write past it is detected.
    std::vector<std::uint8_t> valid(field.pixels());
    if (content == 0) field.content = mask;
    if (content == 1) field.content = DepthOptions{depth, valid.data()};
    if (content == 2) field.content = NormalsOptions{};
    std::vector<std::uint8_t> out(field.bytes());
    field.out = out.data();
    OneSample sample(key, program);
    sample.job.images = {field};
    static Worker worker(best_level());
    const std::string failures = sample.run(worker.worker);
    if (!failures.empty()) {
        const Code code = sample.job.failures.front().code;
        require(code == Code::unsupported || code == Code::corrupt, "no other fault: " + failures);
        return;
    }
    if (content == 0) check_mask(field, source, view);
    if (content == 1) check_depth(field, source, view);
    if (content == 2) check_normals(field, source, view);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
