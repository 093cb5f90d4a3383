// Pixels that are cached, and their conversion to the batch's.
#pragma once

#include "batch/picture_writer.hpp"

namespace headrace {

// Entry of Cut::final: an item's pixels before flips, augmentation and conversion to floats.
class FinalPixels {
public:
    // The pixels are in the batch, or in `canvas` for a picture of floats or with a chain.
    FinalPixels(const FieldItem& item, const Chain& chain, Scratch& canvas);

    const Format& format() const { return format_; }
    std::uint8_t* data() const { return parts_[0].data(); }
    // Reads the pixels from the cache; returns false if they are corrupt.
    bool read(const Store::Item& cached) const;
    // Caches the pixels, made from `image`.
    void put(const Image& image) const;
    void flip(const View& view) const;

private:
    FieldItem item_;
    Format format_;
    Part parts_[kMostParts];  // with the validity of a depth map
    std::size_t count_ = 1;
};

// Copy of a picture with a limited short side, cached if the cut is `shrunk`. One per thread; the copy is valid until
// the next call.
class Shrinker {
public:
    Shrinker(PictureWriter& pictures, StageClock& clock) : pictures_(pictures), clock_(clock) {}

    // Makes a copy of an open image and caches it.
    Image make(const FieldItem& item, const Image& image);
    // Reads a cached copy; nothing if it is corrupt.
    std::optional<Image> read(const FieldItem& item, const Store::Item& cached);
    // Scales the view of an image to its copy, and checks it.
    static View scaled(const View& view, const Image& image, const Image& copy);

private:
    static Image size_of_copy(const FieldItem& item, const Image& image);

    PictureWriter& pictures_;
    StageClock& clock_;
    std::vector<std::uint8_t> pixels_;
};

}  // namespace headrace
