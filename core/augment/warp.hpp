// Resamples one image, or the values of one, at places that an operation maps its pixels to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "augment/draw.hpp"
#include "augment/warp_kernels.hpp"
#include "common/level.hpp"

namespace headrace {

// One a thread. Places are computed in float32, as torchvision does.
class Warper {
public:
    explicit Warper(Level level) : kernels_(&warp_kernels(level)) {}

    // `op` is geometric, and of images of this size: those of all that follows until the next start.
    void start(const DrawnOp& op, int width, int height);

    // RGBX bytes. Both have kRowSlack pixels behind them, which are lost.
    void picture(std::uint8_t* from, std::uint8_t* to);

    // Values of `bytes` each, by the nearest; `from` has the value for places outside behind its last.
    void nearest(std::size_t bytes, const std::uint8_t* from, std::uint8_t* to);

    // Displacements of an elastic operation in pixels, a row after the other.
    const std::vector<float>& across() const { return across_; }
    const std::vector<float>& down() const { return down_; }

private:
    std::size_t pixels() const { return static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_); }
    void displace();
    void smooth(std::vector<float>& field, double sigma_x, double sigma_y, double alpha);
    void find_row(int y);
    bool by_rows() const;
    void copy_rows(std::size_t bytes, const std::uint8_t* from, std::uint8_t* to) const;

    const WarpKernels* kernels_;
    DrawnOp op_{};
    int width_ = 0, height_ = 0;
    std::vector<float> xs_, ys_, across_, down_, padded_, line_;
    std::vector<std::int32_t> numbers_;
};

}  // namespace headrace
