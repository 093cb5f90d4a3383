// Resampling of an image, or of per-pixel values, by a geometric operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "augment/draw.hpp"
#include "augment/warp_kernels.hpp"
#include "common/level.hpp"
#include "common/scratch.hpp"

namespace headrace {

// One per thread. Coordinates are computed in float32, like in torchvision.
class Warper {
public:
    explicit Warper(Level level) : kernels_(&warp_kernels(level)) {}

    // Sets a geometric operation for images of this size, until the next start().
    void start(const DrawnOp& op, int width, int height);

    // Warps RGBX bytes. Both buffers have kRowSlack pixels after their end, which are overwritten.
    void picture(std::uint8_t* from, std::uint8_t* to);

    // Warps values of `bytes` bytes by nearest; the value for coordinates outside follows the last value of `from`.
    void nearest(std::size_t bytes, const std::uint8_t* from, std::uint8_t* to);

    // Directions of an output pixel's two axes in the source, as a rotation or reflection: the local map without scale
    // and shear. A vector of the source is multiplied with the transpose.
    struct Turn {
        double xx, xy, yx, yy;
    };
    Turn turn_at(int x, int y) const;

    // Maps a point of the source, with pixel centres at half-integers, to the output. A point without an image becomes
    // NaN.
    void follow(double& x, double& y) const;

private:
    struct Displacement {
        double x, y;
    };
    Displacement displacement_at(double x, double y) const;
    std::size_t pixels() const { return static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_); }
    void displace();
    void smooth(std::vector<float>& field, double sigma_x, double sigma_y, double alpha);
    // Source coordinates of a row's first pixel under an affine map, and the step per pixel.
    struct AffineRow {
        float from[2], step[2];
    };
    AffineRow affine_row(int y) const;
    // Compute the source coordinates of a row's pixels, and the indices of the source pixels there.
    void find_row(int y);
    void find_numbers(int y);
    bool by_rows() const;
    void copy_rows(std::size_t bytes, const std::uint8_t* from, std::uint8_t* to) const;

    const WarpKernels* kernels_;
    DrawnOp op_{};
    int width_ = 0, height_ = 0;
    std::vector<float> xs_, ys_, line_;
    Scratch padded_;
    std::vector<float> across_, down_;  // displacements of `displaced_` in pixels, row by row
    DrawnOp displaced_{};
    int displaced_width_ = 0, displaced_height_ = 0;
    std::vector<std::int32_t> numbers_;
};

}  // namespace headrace
