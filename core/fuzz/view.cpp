// Views and resampling: any program, given view and size results in a view inside its image, or a fault; and every
// level produces the same bits and faults from the same pixels. Crops of a decoded image in memory equal crops of its
// streamed rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "batch/sample_worker.hpp"
#include "common/fault.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"
#include "fuzz/views.hpp"
#include "fuzz/workers.hpp"
#include "rng/stream.hpp"
#include "view/program.hpp"
#include "view/sample.hpp"

namespace headrace::fuzz {
namespace {

// Maximum pixels of an output, and of the intermediate rows (the source's height times the output's width). More would
// only take longer.
constexpr int kMostPixels = 1 << 12, kMostBetween = 1 << 13;

void check_axis(double from, double to, int low, int high, int source, int size, int inner_at, int inner,
                const char* axis) {
    const std::string where = std::string(" along ") + axis;
    require(std::isfinite(from) && std::isfinite(to), "a finite window" + where);
    require(inner_at >= 0 && inner >= 0 && inner <= size - inner_at, "an inner part on its canvas" + where);
    require(low >= 0 && low < high && high <= source, "bounds inside the source" + where);
    if (inner > 0) require(from >= 0 && from < to && to <= source, "a window inside the source" + where);
}

void check_view(const View& v, Size source) {
    if (v.transposed) std::swap(source.width, source.height);
    require(std::int64_t{v.width} * v.height <= kLimits.max_pixels && v.width > 0 && v.height > 0, "a bounded output");
    check_axis(v.x0, v.x1, v.left, v.right, source.width, v.width, v.inner_x, v.inner_width, "x");
    check_axis(v.y0, v.y1, v.top, v.bottom, source.height, v.height, v.inner_y, v.inner_height, "y");
}

// Checks sizes as large as headers allow, without touching pixels.
void check_large(const std::vector<ViewOp>& program, std::uint64_t key, Size source) {
    try {
        const View view = sample_view(program, key, 1, 0, 0, source.width, source.height);
        check_view(view, source);
        const View scaled =
            scale_view(view, source.width, source.height, (source.width + 1) / 2, (source.height + 1) / 2);
        require(scaled.width == view.width && scaled.height == view.height, "a scaled view has the same output");
    } catch (const Fault& fault) {
        require(fault.code == Code::view || fault.code == Code::unfit, "no other fault: " + std::string(fault.what()));
    }
}

std::vector<std::uint8_t> pixels_of(Size size, int channels, std::uint64_t seed) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.width) * size.height * channels);
    std::uint64_t state = seed | 1;
    for (std::uint8_t& value : pixels) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = static_cast<std::uint8_t>(state >> 56);
    }
    return pixels;
}

struct Source {
    Size size;
    int channels;
    std::vector<std::uint8_t> pixels;

    Memory memory() const { return {pixels.data(), pixels.size(), size.width, size.height, channels}; }
};

struct Options {
    Format format;
    Filter filter;
};

Options options_of(Input& input) {
    Options o{};
    o.format.dtype = static_cast<DType>(input.byte() % 4);
    o.format.planar = input.byte() % 2 == 1;
    o.format.channels = input.byte() % 4 == 0 ? 1 : 3;
    for (int channel = 0; channel < 3; ++channel) {
        o.format.subtract[channel] = input.byte();
        o.format.divide[channel] = 1 + input.byte();
        o.format.fill[channel] = input.byte();
    }
    o.filter = static_cast<Filter>(input.byte() % 8);
    return o;
}

// A level's results for one sample: the first source, the same from memory, and the second source, all with one view;
// and copies of the first, with a view each.
struct Outcome {
    std::vector<std::uint8_t> bytes;
    std::string failures;
    bool in_memory = false;  // true if the image from memory was delivered
};

Outcome cut(Worker& worker, const std::array<Source, 2>& sources, const std::vector<ViewOp>& program,
            const double* given_view, std::uint64_t key, Options options) {
    OneSample sample(key, program);
    Job& job = sample.job;
    job.given_views = given_view;
    Outcome outcome;
    const int copies = copies_of(program).value_or(2), fields = given_view == nullptr ? 4 : 3;
    const std::size_t one = options.format.bytes();
    // Exactly the size of the fields, so that a write past them is detected.
    outcome.bytes.assign((fields == 4 ? 3 + static_cast<std::size_t>(copies) : 3) * one, 0xA5);
    for (int i = 0; i < fields; ++i) {
        ImageField field;
        field.memory = {sources[i == 2 ? 1 : 0].memory()};
        field.format = options.format;
        field.out = outcome.bytes.data() + static_cast<std::size_t>(i) * one;
        if (i == 3) field.own_view = program;
        field.content = PictureOptions{
            .filter = options.filter, .copies = i == 3 ? copies : 1, .decoded_with = i % 2 == 1 ? 1 : -1};
        job.images.push_back(std::move(field));
    }
    outcome.failures = sample.run(worker.worker);
    outcome.in_memory = job.failures.empty() || job.failures.front().field > 1;
    return outcome;
}

// Sets the output's size; returns false if it is invalid or too large for this test.
bool set_size(Format& format, double width, double height, const std::array<Source, 2>& sources) {
    const int rows = std::max(sources[0].size.height, sources[1].size.height);
    if (!(width >= 1 && height >= 1 && width * height <= kMostPixels && width * rows <= kMostBetween)) return false;
    format.width = static_cast<int>(width);
    format.height = static_cast<int>(height);
    return true;
}

void run(Input input) {
    const bool given = input.byte() % 4 == 0;
    const std::uint64_t key = input.take<std::uint64_t>();
    Options options = options_of(input);
    std::array<Source, 2> sources;
    sources[0] = {source_size(input), input.byte() % 2 == 0 ? 1 : 3, {}};
    const Size twice{2 * sources[0].size.width, 2 * sources[0].size.height};
    sources[1] = {input.byte() % 2 == 0 ? twice : source_size(input), 3, {}};
    const Size large{static_cast<int>(input.take<std::uint32_t>() >> 2),
                     static_cast<int>(input.take<std::uint32_t>() >> 2)};

    std::vector<double> view;
    std::vector<ViewOp> program;
    if (given) {
        view = numbers(input, kViewRow);
        if (!set_size(options.format, view[8], view[9], sources)) return;
    } else {
        try {
            program = parse_program(program_table(input));
            if (copies_of(program).value_or(1) > kMostCopies) return;
            check_large(program, key, large);
            const View drawn = sample_view(program, key, 7, 0, 0, sources[0].size.width, sources[0].size.height);
            check_view(drawn, sources[0].size);
            const auto size = output_size(program);
            require(!size || (size->width == drawn.width && size->height == drawn.height), "the output's known size");
            if (!set_size(options.format, drawn.width, drawn.height, sources)) return;
        } catch (const Fault& fault) {
            require(fault.code == Code::view || fault.code == Code::unfit,
                    "no other fault: " + std::string(fault.what()));
            return;
        }
    }
    for (Source& source : sources) source.pixels = pixels_of(source.size, source.channels, key);
    const double* row = given ? view.data() : nullptr;
    static const std::vector<std::unique_ptr<Worker>> workers = workers_of_every_level();
    const Outcome expected = cut(*workers[0], sources, program, row, key, options);
    const std::uint8_t* const bytes = expected.bytes.data();
    const std::size_t one = options.format.bytes();
    require(!expected.in_memory || std::equal(bytes, bytes + one, bytes + one), "from memory as from rows");
    for (std::size_t level = 1; level < workers.size(); ++level) {
        const Outcome got = cut(*workers[level], sources, program, row, key, options);
        const std::string name(level_name(static_cast<Level>(level)));
        require(expected.failures == got.failures, name + " fails as scalar does: " + expected.failures + got.failures);
        require(expected.bytes == got.bytes, name + " has the bits of scalar");
    }
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
