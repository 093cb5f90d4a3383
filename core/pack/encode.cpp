#include "pack/encode.hpp"

#include <csetjmp>
#include <string>

#include "jpeg/libjpeg.hpp"
#include "pack/jpeg_output.hpp"

namespace headrace {

namespace {

// Pixels in a restart interval: about 800 bytes at usual qualities, as the transcoder has them.
constexpr int kIntervalPixels = 2560;

struct Encoder {
    ErrorManager errors{};
    JpegOutput to;

    std::vector<std::uint8_t> encode(const JpegPixels& pixels, const EncodeOptions& options);
};

std::vector<std::uint8_t> Encoder::encode(const JpegPixels& pixels, const EncodeOptions& options) {
    errors.handler();
    errors.reset();
    if (setjmp(errors.jump)) throw errors.fault();
    to.create(errors);
    to.info.image_width = static_cast<JDIMENSION>(pixels.width);
    to.info.image_height = static_cast<JDIMENSION>(pixels.height);
    to.info.input_components = pixels.channels;
    to.info.in_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&to.info);
    jpeg_set_quality(&to.info, options.quality, TRUE);
    const int luma = pixels.channels == 3 && options.halve_chroma ? 2 : 1;
    to.info.comp_info[0].h_samp_factor = luma;
    to.info.comp_info[0].v_samp_factor = luma;
    const std::size_t row_bytes = static_cast<std::size_t>(pixels.width) * pixels.channels;
    to.begin(row_bytes * pixels.height / 4, options.restart ? kIntervalPixels / (64 * luma * luma) : 0, &kPhotoCodes);
    jpeg_start_compress(&to.info, TRUE);
    while (to.info.next_scanline < to.info.image_height) {
        auto* row = const_cast<JSAMPLE*>(pixels.rows + to.info.next_scanline * row_bytes);
        jpeg_write_scanlines(&to.info, &row, 1);
    }
    return to.finish();
}

}  // namespace

std::vector<std::uint8_t> encode_jpeg(const JpegPixels& pixels, const EncodeOptions& options) {
    const auto fits = [](int side) { return side >= 1 && side <= JPEG_MAX_DIMENSION; };
    if (!fits(pixels.width) || !fits(pixels.height)) {
        throw Fault(Code::limit, "expected sides of 1 to " + std::to_string(JPEG_MAX_DIMENSION) +
                                     " pixels for a JPEG, got " + std::to_string(pixels.width) + "x" +
                                     std::to_string(pixels.height));
    }
    return Encoder().encode(pixels, options);
}

}  // namespace headrace
