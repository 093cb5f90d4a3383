#include "batch/views.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "jpeg/orientation.hpp"
#include "view/sample.hpp"

namespace headrace {

namespace {

std::string size_text(int width, int height) { return std::to_string(width) + "x" + std::to_string(height); }

View draw_view(const Job& job, int sample, std::span<const ViewOp> program, std::uint64_t key, const Image& image,
               int copy) {
    return sample_view(program, key, static_cast<std::uint64_t>(job.draw_ids[sample]), job.passes[sample], job.dataset,
                       image.width, image.height, copy);
}

}  // namespace

void check_view(const View& v, int width, int height) {
    if (v.transposed) std::swap(width, height);
    const bool finite = std::isfinite(v.x0) && std::isfinite(v.y0) && std::isfinite(v.x1) && std::isfinite(v.y1);
    const bool empty = lands_nowhere(v);
    if (!finite || !(v.x0 < v.x1 || empty) || !(v.y0 < v.y1 || empty)) {
        throw Fault(Code::view, "expected a window of positive, finite size, got [" + std::to_string(v.x0) + ", " +
                                    std::to_string(v.x1) + ") x [" + std::to_string(v.y0) + ", " +
                                    std::to_string(v.y1) + ")");
    }
    // A pixel of tolerance: windows are computed in floating point.
    if (v.x0 < -1 || v.y0 < -1 || v.x1 > width + 1.0 || v.y1 > height + 1.0) {
        throw Fault(Code::view, "the window leaves the image of " + size_text(width, height));
    }
    if (v.left < 0 || v.top < 0 || v.right > width || v.bottom > height || v.left >= v.right || v.top >= v.bottom) {
        throw Fault(Code::view, "the window's bounds leave the image of " + size_text(width, height));
    }
    if (v.inner_x < 0 || v.inner_y < 0 || v.inner_width < 0 || v.inner_height < 0 ||
        v.inner_width > v.width - v.inner_x || v.inner_height > v.height - v.inner_y) {
        throw Fault(Code::view, "the window lands outside its canvas of " + size_text(v.width, v.height));
    }
}

int dct_scale(const View& view, double margin) {
    if (margin == 0) return 8;
    for (int eighths = 1; eighths < 8; eighths *= 2) {
        if ((view.x1 - view.x0) * eighths / 8 >= margin * view.inner_width &&
            (view.y1 - view.y0) * eighths / 8 >= margin * view.inner_height) {
            return eighths;
        }
    }
    return 8;
}

Window scaled_window(const View& v, const Image& image, int eighths) {
    const int width = JpegDecoder::scaled(image.width, eighths), height = JpegDecoder::scaled(image.height, eighths);
    const int before_x = mirrors_x(image.orientation) ? 8 * width - image.width * eighths : 0;  // in eighths
    const int before_y = mirrors_y(image.orientation) ? 8 * height - image.height * eighths : 0;
    return {(v.x0 * eighths + before_x) / 8,
            (v.y0 * eighths + before_y) / 8,
            (v.x1 * eighths + before_x) / 8,
            (v.y1 * eighths + before_y) / 8,
            (v.left * eighths + before_x) / 8,
            (v.top * eighths + before_y) / 8,
            std::min(width, (v.right * eighths + before_x + 7) / 8),
            std::min(height, (v.bottom * eighths + before_y + 7) / 8),
            v.inner_width,
            v.inner_height,
            v.hflip != 0,
            v.hflip == kFlippedFirst,
            v.vflip == kFlippedFirst};
}

View choose_view(const Job& job, int sample, const Image& image) {
    if (job.given_views != nullptr) return read_view(job.given_views + static_cast<std::size_t>(sample) * kViewRow);
    return draw_view(job, sample, job.program, job.key, image, 0);
}

void record_size(Job& job, int sample, const Image& image) {
    job.sizes[2 * sample] = image.width;
    job.sizes[2 * sample + 1] = image.height;
}

void Scene::begin(const ImageField& first, const Image& image) {
    record_size(job_, sample_, image);
    first_ = image;
    if (first.own_view) return;
    view_ = choose_view(job_, sample_, image);
    write_view(view_, job_.views.data() + static_cast<std::size_t>(sample_) * kViewRow);
}

View Scene::view_of(const ImageField& field, int copy, const Image& image) const {
    View view = view_;
    if (field.own_view) {
        view = draw_view(job_, sample_, *field.own_view, job_.key_of(field, copy), image, copy);
    } else if (image.width != first_.width || image.height != first_.height || field.scale != 1) {
        const bool exact = field.scale != 1 && !resizes(job_.program);
        view = scale_view(view, first_.width, first_.height, image.width, image.height, field.scale, exact);
    }
    check_view(view, image.width, image.height);
    if (view.width != field.format.width || view.height != field.format.height) {
        throw Fault(Code::view, "the view makes " + size_text(view.width, view.height) + " of an image of " +
                                    size_text(image.width, image.height) + ", but the batch holds " +
                                    size_text(field.format.width, field.format.height));
    }
    return view;
}

}  // namespace headrace
