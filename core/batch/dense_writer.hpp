// Writing of masks, depth, normals and wide pictures into the batch.
#pragma once

#include "batch/picture_writer.hpp"
#include "dense/depth_target.hpp"
#include "dense/quantiles.hpp"
#include "dense/vector_target.hpp"

namespace headrace {

// One per thread. Each content checks the source and resamples its window. Depth fields of one file share a decode.
class DenseWriter {
public:
    DenseWriter(Level level, PictureWriter& pictures, ImageReader& reader, StageClock& clock)
        : pictures_(pictures),
          reader_(reader),
          clock_(clock),
          depth_(kernels(level)),
          vectors_(kernels(level)),
          wide_(kernels(level)) {}

    // Writes the view of an open image. The field's content is not a picture.
    void write(const FieldItem& item, const Image& image, const View& view);
    // Call before the first field of a sample.
    void begin_sample() { depth_field_ = nullptr; }

private:
    void put(const MaskOptions&, const FieldItem&, const Image&, const View&);
    void put(const DepthOptions&, const FieldItem&, const Image&, const View&);
    void put(const NormalsOptions&, const FieldItem&, const Image&, const View&);
    void put(const WideOptions&, const FieldItem&, const Image&, const View&);
    // Sends the view's nearest pixels, of `values` values of `type`. All rows of the image pass the depth counter first
    // if it counts.
    void pick(Filter nearest, const Image& image, PixelType type, int values, const View& view, PixelRows& out,
              bool counts = false);

    PictureWriter& pictures_;  // for normals of bytes
    ImageReader& reader_;
    StageClock& clock_;
    NearestSampler nearest_;
    MaskTarget mask_;
    DepthTarget depth_;
    DepthCounter depth_counter_;
    const ImageField* depth_field_ = nullptr;  // whose numbers depth_ holds, in the view below
    View depth_view_;
    VectorTarget vectors_;
    WideSampler wide_;
};

// Geometric operations of a sample on its masks, depth and normals. One per thread.
class DenseWarper {
public:
    DenseWarper(Level level, StageClock& clock) : kernels_(&kernels(level)), clock_(clock), warper_(level) {}

    // Runs the chain on the item in the batch.
    void warp(const FieldItem& item, const Chain& chain);

private:
    void warp_values(std::size_t pixels, std::size_t bytes, const std::uint8_t* outside, std::uint8_t* values);
    void turn_normals(const Format& format, bool y_up, std::uint8_t* normals);

    const Kernels* kernels_;
    StageClock& clock_;
    Warper warper_;
    Scratch unwarped_;
    std::vector<float> turned_;
};

}  // namespace headrace
