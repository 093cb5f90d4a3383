// Resamples one image, or the values of one, at places that an operation maps its pixels to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "augment/draw.hpp"
#include "augment/warp_kernels.hpp"
#include "common/level.hpp"
#include "common/scratch.hpp"

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

    // The directions of an output pixel's two axes in the source, as a rotation or reflection: what is left of the map
    // there once scale and shear are taken out. A vector of the source becomes its product with the rows' transpose.
    struct Turn {
        double xx, xy, yx, yy;
    };
    Turn turn_at(int x, int y) const;

    // Moves a place of the source, pixel middles at halves, to where the operation shows it. What is shown nowhere
    // becomes no number.
    void follow(double& x, double& y) const;

private:
    struct Displacement {
        double x, y;
    };
    Displacement displacement_at(double x, double y) const;
    std::size_t pixels() const { return static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_); }
    void displace();
    void smooth(std::vector<float>& field, double sigma_x, double sigma_y, double alpha);
    // Where an affine map takes the first pixel of a row, and what each further one adds.
    struct AffineRow {
        float from[2], step[2];
    };
    AffineRow affine_row(int y) const;
    // The places of a row's pixels in the source, and the numbers of the source's pixels there.
    void find_row(int y);
    void find_numbers(int y);
    bool by_rows() const;
    void copy_rows(std::size_t bytes, const std::uint8_t* from, std::uint8_t* to) const;

    const WarpKernels* kernels_;
    DrawnOp op_{};
    int width_ = 0, height_ = 0;
    std::vector<float> xs_, ys_, line_;
    Scratch padded_;
    std::vector<float> across_, down_;  // displacements in pixels of `displaced_`, a row after the other
    DrawnOp displaced_{};
    int displaced_width_ = 0, displaced_height_ = 0;
    std::vector<std::int32_t> numbers_;
};

}  // namespace headrace
