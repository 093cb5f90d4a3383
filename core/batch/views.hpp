// Views of a sample's images: their choice, their checks, and their windows of decoded images.
#pragma once

#include "batch/image_reader.hpp"
#include "resample/resampler.hpp"

namespace headrace {

// True for a crop that is entirely in its padding.
inline bool lands_nowhere(const View& view) { return view.inner_width == 0 || view.inner_height == 0; }

// Throws Fault(view) if the view does not fit an image of this size, before its rows and columns are swapped.
void check_view(const View&, int width, int height);

// Returns the smallest DCT scale, in eighths, at which the window has at least `margin` times its output's pixels each
// way; 8 if margin is 0, which disables scaling.
int dct_scale(const View&, double margin);

// Returns the view's window in the image scaled by exactly eighths/8; with the size rounded up, image and mask would
// drift apart. The stored image's last pixels are padded to a whole one, which a mirrored image begins with.
Window scaled_window(const View&, const Image&, int eighths);

// Returns the given or drawn view of a sample's first image.
View choose_view(const Job& job, int sample, const Image& image);

// First image of a sample and the job's view of it, which the other fields follow.
class Scene {
public:
    Scene(Job& job, int sample) : job_(job), sample_(sample) {}

    // Records the size of the first field's image, and chooses the view unless the field has its own.
    void begin(const ImageField& first, const Image& image);
    // Returns the view of a field's image, checked against the image and the batch.
    View view_of(const ImageField& field, int copy, const Image& image) const;

private:
    Job& job_;
    const int sample_;
    Image first_;
    View view_;
};

// Records the size of a sample's first image in the outcome.
void record_size(Job& job, int sample, const Image& image);

}  // namespace headrace
