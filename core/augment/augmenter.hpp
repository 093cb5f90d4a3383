// Execution of a chain of operations on one image right after its crop, while it is in the thread's cache.
#pragma once

#include <cstdint>
#include <vector>

#include "augment/augment_kernels.hpp"
#include "augment/draw.hpp"
#include "augment/warp.hpp"
#include "common/level.hpp"
#include "common/scratch.hpp"
#include "resample/resampler.hpp"
#include "resample/target.hpp"
#include "view/placement.hpp"

namespace headrace {

// One per thread. The canvas holds contiguous rows of RGBX bytes; grey images have R = G = B.
class Augmenter final : public PixelRows {
public:
    explicit Augmenter(Level level)
        : kernels_(&augment_kernels(level)), values_(&headrace::kernels(level)), warper_(level) {}

    // Prepares for the rows at `place`; the rest of the canvas is `fill`.
    void start(const Placement& place, const std::uint8_t* fill);
    void write(int y, const std::uint8_t* rgbx) override;

    // Loads a whole canvas of bytes in the batch's format.
    void load(const Format& format, const std::uint8_t* bytes);

    // Runs the chain except erasures, which write the batch's values. `grey` images have one channel.
    void run(const Chain& chain, bool grey);

    // Sets the drawn rectangle of the batch's image at `at` to the erasure's values.
    void erase(const Format&, const DrawnOp&, std::uint8_t* at) const;

    int width() const { return width_; }
    int height() const { return height_; }
    // Has kRowSlack readable pixels after its end.
    std::uint8_t* canvas() { return canvas_; }

private:
    std::size_t stride() const { return 4 * static_cast<std::size_t>(width_); }
    std::size_t pixels() const { return static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_); }
    void apply(const DrawnOp& op, bool grey);
    // Adds the finished branch of AugMix to the sums.
    void add_branch();
    void contrast(float factor, bool grey);
    void autocontrast();
    void equalize();
    void sharpness(float factor);
    void warp(const DrawnOp&);
    void blur(double sigma, int across, int down);
    void solarize_add(int addend, int threshold);

    const AugmentKernels* kernels_;
    const Kernels* values_;
    Warper warper_;
    Scratch memory_, other_, rows_;
    std::uint8_t* canvas_ = nullptr;
    Placement place_{};
    int width_ = 0, height_ = 0;
    std::vector<float> sums_;
    std::vector<std::uint8_t> original_;
    double branch_ = 0;  // weight of the current branch of AugMix; 0: none
};

}  // namespace headrace
