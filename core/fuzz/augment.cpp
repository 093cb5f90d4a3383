// Augmentations: any program is rejected, or draws chains of bounded length and finite numbers for any key and size;
// and every level produces the same bits and faults from a picture and a mask.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "augment/draw.hpp"
#include "batch/sample_worker.hpp"
#include "common/fault.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"
#include "fuzz/views.hpp"
#include "fuzz/workers.hpp"
#include "view/program.hpp"

namespace headrace::fuzz {
namespace {

constexpr int kMostSide = 40, kMostNodes = 12;

constexpr int kKinds[] = {kSequence,     kChoice,   kOrder,       kAugMix,       kBrightness,      kContrast,
                          kSaturation,   kHue,      kGrayscale,   kInvert,       kSolarize,        kPosterize,
                          kAutoContrast, kEqualize, kSharpness,   kGaussianBlur, kPermuteChannels, kErase,
                          kSolarizeAdd,  kAffine,   kPerspective, kElastic};

// Returns typical constants, so that most of the code is reached; occasionally arbitrary ones.
std::vector<double> constants_of(Input& input, int kind) {
    if (input.byte() % 8 == 0) return numbers(input, kConstants);
    const auto some = [&](int count) { return static_cast<double>(input.byte() % count); };
    const auto share = [&] { return input.byte() / 255.0; };
    switch (kind) {
        case kChoice:
            return {1 + some(3)};
        case kAugMix:
            return {1 + some(4), some(5) - 1, 0.01 + 3 * share()};
        case kPosterize:
            return {some(3)};
        case kGaussianBlur:
            return {1 + 2 * some(16), 1 + 2 * some(16)};
        case kErase:
            return {share(), 1, 0.01 + share(), 1 + 10 * share(), some(256), some(256), some(256), some(3)};
        case kSolarizeAdd:
            return {some(256)};
        case kAffine:
            return {some(2), some(256), some(256), some(256), some(4), some(2), some(2)};
        case kPerspective:
            return {some(2), some(256), some(256), some(256), share()};
        case kElastic:
            return {some(2), some(256), some(256), some(256)};
        default:
            return {};
    }
}

std::vector<double> parameter_of(Input& input) {
    const int kind = input.byte() % 8;
    if (kind == 0) return numbers(input, kParameterColumns);
    if (kind < 4) return {kFixed, input.byte() / 64.0};
    if (kind == 4) return {kUniform, input.byte() / 64.0, input.byte() / 64.0, 0, 0, input.byte() / 128.0, 0};
    if (kind == 5)
        return {kSteps, 0, input.byte() / 32.0, double(1 + input.byte() % 32), 0, 1, double(input.byte() % 9)};
    if (kind == 6) return {kNormal, 0, input.byte() / 32.0, input.byte() / 255.0, input.byte() / 255.0, 0, 1};
    return {kUniform, 0, double(input.byte()), 0, 0, 0, 0};
}

void add_node(Input& input, std::vector<double>& table, int depth) {
    const std::size_t rows = table.size() / kAugmentColumns;
    const bool full = rows + 1 >= kMostNodes || depth == 0;
    const int kind =
        full ? kKinds[4 + input.byte() % (std::size(kKinds) - 4)] : kKinds[input.byte() % std::size(kKinds)];
    int children = is_group(kind) ? 1 + input.byte() % 3 : 0;
    if (kind == kAugMix) children = 1;
    const std::size_t at = table.size();
    table.resize(at + kAugmentColumns);
    table[at] = input.byte() % 64 == 0 ? number(input) : kind;
    table[at + 1] = input.byte() % 64 == 0 ? number(input) : children;
    table[at + 2] = input.byte() % 4 == 0 ? input.byte() / 255.0 : 1;
    table[at + 3] = input.byte() / 16.0;
    for (std::size_t k = 0; k < kParameters && !input.empty() && !is_group(kind); ++k) {
        const std::vector<double> columns = parameter_of(input);
        std::copy(columns.begin(), columns.end(),
                  table.begin() + static_cast<std::ptrdiff_t>(at + kFirstParameter + k * kParameterColumns));
    }
    const std::vector<double> constants = constants_of(input, kind);
    std::copy(constants.begin(), constants.end(), table.begin() + static_cast<std::ptrdiff_t>(at + kFirstConstant));
    for (int child = 0; child < children; ++child) add_node(input, table, depth - 1);
}

// Returns a random program; null if the core rejects it.
std::shared_ptr<const AugmentProgram> program_of(Input& input) {
    std::vector<double> table;
    for (int roots = 1 + input.byte() % 3; roots > 0; --roots) add_node(input, table, 3);
    try {
        return std::make_shared<const AugmentProgram>(parse_augment(table));
    } catch (const Fault& fault) {
        require(fault.code == Code::view, "no other fault: " + std::string(fault.what()));
        return nullptr;
    }
}

void check_chain(const AugmentProgram& program, std::uint64_t key, int width, int height) {
    const Chain chain = draw_chain(program, {key, 7, 0, 0, 0}, width, height);
    require(chain.size() <= program.size() * kMaxChain, "a chain of bounded length");
    for (const DrawnOp& op : chain)
        for (const double value : op.args)
            require(std::isfinite(value), "finite numbers of operation " + std::to_string(op.kind));
}

struct Picture {
    int width, height, channels;
    std::vector<std::uint8_t> pixels;
};

Picture picture_of(Input& input, std::uint64_t seed) {
    Picture made{input.between(1, kMostSide), input.between(1, kMostSide), input.byte() % 3 == 0 ? 1 : 3, {}};
    made.pixels.resize(static_cast<std::size_t>(made.width) * made.height * made.channels);
    // Few distinct values for some seeds: histograms with gaps, and constant channels.
    const auto mask = static_cast<std::uint8_t>(seed % 3 == 0 ? 0x80 : seed % 3 == 1 ? 0 : 0xFF);
    std::uint64_t state = seed | 1;
    for (std::uint8_t& value : made.pixels) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = static_cast<std::uint8_t>(state >> 56) & mask;
    }
    return made;
}

struct Outcome {
    std::vector<std::uint8_t> bytes, mask;
    std::string failures;
};

// Identity table of a mask.
const std::vector<std::int64_t>& every_value() {
    static const std::vector<std::int64_t> table = [] {
        std::vector<std::int64_t> values(MaskFormat::kValues);
        for (std::size_t value = 0; value < values.size(); ++value)
            values[value] = static_cast<std::int64_t>(value % 256);
        return values;
    }();
    return table;
}

Outcome augmented(Worker& worker, const Picture& picture, const Format& format,
                  const std::shared_ptr<const AugmentProgram>& of_sample,
                  const std::shared_ptr<const AugmentProgram>& of_field, std::uint64_t key) {
    OneSample sample(key, {{kResize, {static_cast<double>(format.height), static_cast<double>(format.width)}}});
    Job& job = sample.job;
    job.augment = of_sample;
    Outcome outcome;
    const Memory memory{picture.pixels.data(), picture.pixels.size(), picture.width, picture.height, picture.channels};
    // Exactly the size of the fields, so that a write past them is detected.
    outcome.bytes.assign(format.bytes(), 0xA5);
    outcome.mask.assign(static_cast<std::size_t>(format.width) * format.height, 0xA5);
    ImageField field;
    field.memory = {memory};
    field.format = format;
    field.out = outcome.bytes.data();
    field.content = PictureOptions{.augment = of_field};
    field.name_hash = key;
    job.images.push_back(std::move(field));
    if (picture.channels == 1) {
        ImageField mask;
        mask.memory = {memory};
        mask.content = MaskOptions{.table = every_value().data()};
        mask.format = format;
        mask.out = outcome.mask.data();
        job.images.push_back(std::move(mask));
    }
    outcome.failures = sample.run(worker.worker);
    return outcome;
}

Format format_of(Input& input) {
    Format format;
    format.dtype = static_cast<DType>(input.byte() % 4);
    format.planar = input.byte() % 2 == 1;
    format.channels = input.byte() % 4 == 0 ? 1 : 3;
    format.width = input.between(1, kMostSide);
    format.height = input.between(1, kMostSide);
    return format;
}

void run(Input input) {
    const std::uint64_t key = input.take<std::uint64_t>();
    const Format format = format_of(input);
    const Picture picture = picture_of(input, key);
    const int large_width = 1 + (input.take<std::uint16_t>() >> 1),
              large_height = 1 + (input.take<std::uint16_t>() >> 1);
    const bool both = input.byte() % 2 == 0;
    const auto of_sample = program_of(input);
    const auto of_field = both ? program_of(input) : nullptr;
    for (const auto& program : {of_sample, of_field}) {
        if (!program) continue;
        check_chain(*program, key, format.width, format.height);
        check_chain(*program, key, large_width, large_height);
    }
    if (!of_sample && !of_field) return;
    static const std::vector<std::unique_ptr<Worker>> workers = workers_of_every_level();
    const Outcome expected = augmented(*workers[0], picture, format, of_sample, of_field, key);
    for (std::size_t level = 1; level < workers.size(); ++level) {
        const Outcome got = augmented(*workers[level], picture, format, of_sample, of_field, key);
        const std::string name(level_name(static_cast<Level>(level)));
        require(expected.failures == got.failures, name + " fails as scalar does: " + expected.failures + got.failures);
        require(expected.bytes == got.bytes && expected.mask == got.mask, name + " has the bits of scalar");
    }
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
