#include "augment/draw.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "augment/geometry.hpp"
#include "view/exact_math.hpp"

namespace headrace {
namespace {

constexpr std::uint32_t kFirstStage = 64;

class Drawer {
public:
    Drawer(const AugmentProgram& program, const Stream& stream, int width, int height)
        : program_(program), stream_(stream), width_(width), height_(height) {}

    Chain chain() {
        chain_.reserve(8);
        for (std::size_t at = 0; at < program_.size(); at = static_cast<std::size_t>(program_[at].end)) run(at);
        return std::move(chain_);
    }

private:
    Draw next() {
        const std::uint32_t n = count_++;
        stream_.stage = static_cast<std::uint8_t>(kFirstStage + n / 256 % (kFirstReservedStage - kFirstStage));
        return stream_.at(static_cast<std::uint8_t>(n % 256));
    }

    void run(std::size_t at) {
        const AugmentNode& node = program_[at];
        if (node.probability < 1 && !(unit_interval(next().first) < node.probability)) return;
        switch (node.kind) {
            case kSequence:
                for (const std::size_t child : children(at)) run(child);
                return;
            case kOrder: {
                std::vector<std::size_t> order = children(at);
                for (std::size_t place = order.size() - 1; place > 0; --place)
                    std::swap(order[place], order[below(next().first, place + 1)]);
                for (const std::size_t child : order) run(child);
                return;
            }
            case kChoice: {
                std::vector<std::size_t> left = children(at);
                for (int turn = 0; turn < node.constants[0]; ++turn) {
                    const std::size_t child = choose(left);
                    if (node.constants[1] != 0) left.erase(std::find(left.begin(), left.end(), child));
                    run(child);
                }
                return;
            }
            case kAugMix:
                return mix(at);
            default:
                leaf(node);
        }
    }

    std::vector<std::size_t> children(std::size_t at) const {
        std::vector<std::size_t> list;
        list.reserve(16);
        for (auto child = at + 1; child < static_cast<std::size_t>(program_[at].end);
             child = static_cast<std::size_t>(program_[child].end))
            list.push_back(child);
        return list;
    }

    std::size_t choose(const std::vector<std::size_t>& children) {
        double sum = 0;
        for (const std::size_t child : children) sum += program_[child].weight;
        const double at = unit_interval(next().first) * sum;
        double reached = 0;
        for (const std::size_t child : children) {
            reached += program_[child].weight;
            if (at < reached) return child;
        }
        return children.back();  // rounding may leave the sum below the draw
    }

    double draw(const Parameter& p) {
        if (p.distribution == kFixed && !p.is_signed) return p.offset + p.low;
        double t = 0;
        std::uint64_t sign = 0;
        if (p.distribution == kNormal) {
            t = std::clamp(p.x + p.y * normal(), 0.0, 1.0);
            if (p.is_signed) sign = next().second;
        } else {
            const Draw drawn = next();
            sign = drawn.second;
            if (p.distribution == kUniform) t = unit_interval(drawn.first);
            if (p.distribution == kSteps && p.x > 1)
                t = static_cast<double>(below(drawn.first, static_cast<std::uint64_t>(p.x))) / (p.x - 1);
        }
        const double value = p.low + t * (p.high - p.low);
        return p.offset + (p.is_signed && sign >> 63 != 0 ? -value : value);
    }

    double normal() {
        for (;;) {
            const Draw drawn = next();
            const double u = 2 * unit_interval(drawn.first) - 1, v = 2 * unit_interval(drawn.second) - 1;
            const double s = u * u + v * v;
            if (s > 0 && s < 1) return u * std::sqrt(-2 * exact_log(s) / s);
        }
    }

    // Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. A shape below 1 is increased by 1,
    // and the result multiplied by u^(1 / shape).
    double gamma(double shape) {
        double factor = 1;
        if (shape < 1) {
            factor = exact_exp(exact_log(1 - unit_interval(next().first)) / shape);
            shape += 1;
        }
        const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
        for (;;) {
            const double x = normal(), root = 1 + c * x;
            if (root <= 0) continue;
            const double v = root * root * root, u = 1 - unit_interval(next().first);
            if (exact_log(u) < 0.5 * x * x + d - d * v + d * exact_log(v)) return factor * d * v;
        }
    }

    // Hendrycks et al., "AugMix", ICLR 2020: m ~ Beta(alpha, alpha), weights ~ Dirichlet(alpha, …).
    void mix(std::size_t at) {
        const AugmentNode& node = program_[at];
        const double alpha = node.constants[2];
        const double a = gamma(alpha), b = gamma(alpha);
        const double m = a + b > 0 ? a / (a + b) : 0.5;
        std::array<double, 8> weights{};
        const auto width = static_cast<std::size_t>(node.constants[0]);
        double sum = 0;
        for (std::size_t branch = 0; branch < width; ++branch) sum += weights[branch] = gamma(alpha);
        add(kMixBegin, {});
        for (std::size_t branch = 0; branch < width; ++branch) {
            add(kMixBranch, {sum > 0 ? weights[branch] / sum : 1.0 / static_cast<double>(width)});
            const int depth = node.constants[1] < 0 ? 1 + static_cast<int>(below(next().first, 3))
                                                    : static_cast<int>(node.constants[1]);
            for (int turn = 0; turn < depth; ++turn) run(at + 1);
        }
        add(kMixEnd, {m});
    }

    void leaf(const AugmentNode& node) {
        const double* c = node.constants;
        std::array<double, kParameters> p{};
        for (std::size_t k = 0; k < kParameters; ++k) p[k] = draw(node.parameters[k]);
        switch (node.kind) {
            case kGaussianBlur:
                return add(node.kind, {p[0], c[0], c[1]});
            case kPermuteChannels: {
                std::array<double, 3> order{0, 1, 2};
                for (std::size_t place = 2; place > 0; --place)
                    std::swap(order[place], order[below(next().first, place + 1)]);
                return add(node.kind, {order[0], order[1], order[2]});
            }
            case kErase:
                return erase(node);
            case kSolarize:
                return add(node.kind, {c[0] != 0 ? std::floor(p[0]) : p[0]});
            case kSolarizeAdd:
            case kPosterize:
                return add(node.kind, {p[0], c[0]});
            case kAffine:
                return add_map(node, affine_map(p.data(), static_cast<Translation>(static_cast<int>(c[4])), c[5] != 0,
                                                c[6] != 0, width_, height_));
            case kPerspective: {
                std::array<Draw, 4> corners{};
                for (Draw& corner : corners) corner = next();
                return add_map(node, perspective_map(corners, c[4], width_, height_));
            }
            case kElastic: {
                const Draw noise = next();
                return add(node.kind,
                           {c[0], c[1], c[2], c[3], p[0], p[1], p[2], p[3], static_cast<double>(noise.first >> 32),
                            static_cast<double>(noise.second >> 32)});
            }
            default:
                add(node.kind, {p[0], p[1], p[2], p[3]});
        }
    }

    // Each attempt takes two draws: the fraction of the area (first) and the ratio's logarithm (second), then top
    // (first) and left (second). Ten failures leave the image unchanged, like in torchvision. Normal values take one
    // more draw, the key of their noise; its first three values are the colour of a rectangle.
    void erase(const AugmentNode& node) {
        const double* c = node.constants;
        const double area = static_cast<double>(width_) * height_;
        const double log_low = exact_log(c[2]), log_high = exact_log(c[3]);
        for (int attempt = 0; attempt < 10; ++attempt) {
            const Draw shape = next(), place = next();
            const double target = area * uniform(shape.first, c[0], c[1]);
            const double ratio = exact_exp(uniform(shape.second, log_low, log_high));
            const double h = round_half_even(std::sqrt(target * ratio)), w = round_half_even(std::sqrt(target / ratio));
            if (!(h < height_ && w < width_)) continue;
            const auto top = below(place.first, static_cast<std::uint64_t>(height_ - h + 1));
            const auto left = below(place.second, static_cast<std::uint64_t>(width_ - w + 1));
            const Draw key = c[7] != 0 ? next() : Draw{};
            const auto high = static_cast<double>(key.first >> 32), low = static_cast<double>(key.second >> 32);
            std::array<double, 3> values{c[4], c[5], c[6]};
            if (c[7] == 2) {
                Noise noise(noise_key(high, low));
                for (double& value : values) value = noise.normal();
            }
            return add(kErase, {static_cast<double>(left), static_cast<double>(top), w, h, values[0], values[1],
                                values[2], static_cast<double>(c[7] == 1), high, low});
        }
    }

    void add(int kind, std::initializer_list<double> args) {
        DrawnOp op{kind, {}};
        std::copy(args.begin(), args.end(), op.args);
        chain_.push_back(op);
    }

    void add_map(const AugmentNode& node, const Map& map) {
        DrawnOp op{node.kind, {}};
        std::copy(node.constants, node.constants + 4, op.args);
        std::copy(map.begin(), map.end(), op.args + 4);
        chain_.push_back(op);
    }

    const AugmentProgram& program_;
    Stream stream_;
    int width_, height_;
    std::uint32_t count_ = 0;
    Chain chain_;
};

}  // namespace

double Noise::normal() {
    if (has_spare_) {
        has_spare_ = false;
        return spare_;
    }
    for (;;) {
        const auto low = static_cast<std::uint32_t>(next_), high = static_cast<std::uint32_t>(next_ >> 32);
        const PhiloxBlock block = philox4x32({low, high, 0, 0}, key_);
        ++next_;
        const double u = 2 * unit_interval(block[0] | std::uint64_t{block[1]} << 32) - 1;
        const double v = 2 * unit_interval(block[2] | std::uint64_t{block[3]} << 32) - 1;
        const double s = u * u + v * v;
        if (!(s > 0 && s < 1)) continue;
        const double by = std::sqrt(-2 * exact_log(s) / s);
        spare_ = v * by;
        has_spare_ = true;
        return u * by;
    }
}

Chain draw_chain(const AugmentProgram& program, const Stream& stream, int width, int height) {
    return Drawer(program, stream, width, height).chain();
}

}  // namespace headrace
