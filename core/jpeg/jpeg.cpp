#include "jpeg/jpeg.hpp"

#include <algorithm>
#include <csetjmp>
#include <vector>

#include "common/fault.hpp"
#include "jpeg/baseline.hpp"
#include "jpeg/frame.hpp"
#include "jpeg/libjpeg.hpp"
#include "jpeg/orientation.hpp"

namespace headrace {

namespace {

// Rows per band: enough to make two clock readings per band negligible, few enough to fit in the L2 cache.
constexpr int kBandRows = 16;
// The outer two columns and rows of a cropped decode differ from the full one through chroma upsampling.
constexpr int kMargin = 2;

// True if jpeg_crop_scanline crops every component correctly. It assumes each component's width from its sampling
// factor, even if the DCT scales the component by more than the others (for example 4:1:0 at a quarter); an upsampler
// then produces too few columns, and the rest is uninitialized memory. Decided by the components' sizes, since the
// scales have other names in the libjpeg 7 and 8 interfaces.
bool can_crop(const jpeg_decompress_struct& info) {
    const auto crops = [&](const jpeg_component_info& part) {
        const auto most = static_cast<JDIMENSION>(info.max_h_samp_factor);
        const JDIMENSION taken_for = (info.output_width * part.h_samp_factor + most - 1) / most;
        const bool as_it_is =
            part.downsampled_width == info.output_width && part.downsampled_height == info.output_height;
        return part.downsampled_width == taken_for || as_it_is;
    };
    return std::all_of(info.comp_info, info.comp_info + info.num_components, crops);
}

}  // namespace

struct JpegDecoder::State {
    State(Level level, JpegPath chosen) : path(quicker(level, chosen)), baseline(level) {}

    // Without vectors the native decoder takes three times as long as libjpeg, which has vector code, including NEON.
    static JpegPath quicker(Level level, JpegPath chosen) {
        return chosen == JpegPath::choose && level < Level::avx2 ? JpegPath::libjpeg : chosen;
    }

    const JpegPath path;
    BaselineDecoder baseline;
    bool native = false;  // `baseline` decodes this file
    int eighths = 8, left = 0, right = 0;
    jpeg_decompress_struct info{};
    ErrorManager errors{};
    ScanLimit scans{};
    JpegInfo result;
    bool whole = true;  // the file has its end marker
    std::size_t file_size = 0;
    std::vector<std::uint8_t> band;
    int row_bytes = 0;

    [[noreturn]] void fail() {
        jpeg_abort_decompress(&info);
        throw errors.fault();
    }
    [[noreturn]] void refuse(const Fault& fault) {
        jpeg_abort_decompress(&info);
        throw fault;
    }
    void create();
    void read_header(std::span<const std::uint8_t> start, const Limits&, bool want_orientation);
    bool begin_native(Columns&);
    Columns begin_libjpeg();
    void decode_libjpeg(int top, int bottom, int sent, RowSink& sink);
    void read_rows(RowSink* sink, int rows);
    void read_planes(std::uint8_t* out);
    void expect_whole();
};

JpegDecoder::JpegDecoder(Level level, JpegPath path) : state_(std::make_unique<State>(level, path)) {
    State& s = *state_;
    s.info.err = s.errors.handler();
    s.create();
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->info); }

bool is_jpeg(std::span<const std::uint8_t> file) {
    return file.size() >= 3 && file[0] == 0xFF && file[1] == 0xD8 && file[2] == 0xFF;
}

// Creates a new decompressor. A used one retains quantisation and Huffman tables, so a file without tables would be
// decoded with the tables of the thread's previous file. Takes 0.1 us.
void JpegDecoder::State::create() {
    jpeg_destroy_decompress(&info);
    if (setjmp(errors.jump)) throw errors.fault();
    jpeg_create_decompress(&info);
}

const JpegInfo& JpegDecoder::open(std::span<const std::uint8_t> file, const Limits& limits, bool want_orientation) {
    State& s = *state_;
    s.file_size = file.size();
    s.read_header(file, limits, want_orientation);
    s.whole = has_end(file.last(s.info.src->bytes_in_buffer));
    s.scans.watch(s.info, limits);
    return s.result;
}

const JpegInfo& JpegDecoder::probe(std::span<const std::uint8_t> start, std::size_t file_bytes, const Limits& limits,
                                   bool want_orientation) {
    state_->file_size = file_bytes;
    state_->read_header(start, limits, want_orientation);
    return state_->result;
}

// If `start` ends too early, libjpeg continues with end-of-image markers and finds no scan.
void JpegDecoder::State::read_header(std::span<const std::uint8_t> start, const Limits& limits, bool want_orientation) {
    errors.reset();
    result = {};
    create();
    if (setjmp(errors.jump)) fail();
    jpeg_mem_src(&info, start.data(), static_cast<unsigned long>(start.size()));
    jpeg_read_header(&info, TRUE);
    if (const auto fault = header_fault(info, file_size, limits, false)) refuse(*fault);
    // Markers that libjpeg saves are copied byte by byte: 5 % of a small photograph's decode.
    if (want_orientation) result.orientation = jpeg_orientation(start);
    result.width = static_cast<int>(info.image_width);
    result.height = static_cast<int>(info.image_height);
    result.grey = info.num_components == 1;
    result.progressive = info.progressive_mode;
}

JpegDecoder::Columns JpegDecoder::begin(int eighths, int left, int right) {
    State& s = *state_;
    s.eighths = eighths;
    s.left = left;
    s.right = right;
    Columns columns;
    s.native = s.begin_native(columns);
    return s.native ? columns : s.begin_libjpeg();
}

bool JpegDecoder::native() const { return state_->native; }

// Selects the same columns as libjpeg below, which may have to take over.
bool JpegDecoder::State::begin_native(Columns& columns) {
    if (path == JpegPath::libjpeg || eighths < 4 || !whole || !describe(info, baseline.frame())) return false;
    if (eighths == 4 && !halve(baseline.frame())) return false;
    int first = std::max(0, left - kMargin);
    const int end = std::min(baseline.frame().width, right + kMargin);
    first -= first % baseline.frame().mcu_width();
    columns = {first, end - first};
    return baseline.begin(first, end - first, path == JpegPath::native);
}

JpegDecoder::Columns JpegDecoder::State::begin_libjpeg() {
    if (setjmp(errors.jump)) fail();
    info.scale_num = static_cast<unsigned>(eighths);
    info.scale_denom = 8;
    info.out_color_space = JCS_EXT_RGBX;
    info.dct_method = JDCT_ISLOW;
    info.do_block_smoothing = FALSE;  // affects only unfinished progressive files, and differs within a window
    jpeg_start_decompress(&info);
    JDIMENSION first = static_cast<JDIMENSION>(std::max(0, left - kMargin));
    const int end = std::min<int>(static_cast<int>(info.output_width), right + kMargin);
    JDIMENSION width = static_cast<JDIMENSION>(end) - first;
    if (!can_crop(info)) {
        first = 0;
    } else if (width < info.output_width) {
        jpeg_crop_scanline(&info, &first, &width);
    }
    row_bytes = static_cast<int>(4 * info.output_width);
    const std::size_t stride = static_cast<std::size_t>(row_bytes) + kReadableBeyond;
    if (band.size() < kBandRows * stride) band.resize(kBandRows * stride);
    return {static_cast<int>(first), static_cast<int>(info.output_width)};
}

// Reads `rows` rows and passes them to the sink; without a sink they are dropped.
void JpegDecoder::State::read_rows(RowSink* sink, int rows) {
    const std::size_t stride = static_cast<std::size_t>(row_bytes) + kReadableBeyond;
    JSAMPROW pointers[kBandRows];
    while (rows > 0) {
        const int want = std::min(rows, kBandRows);
        for (int r = 0; r < want; ++r) pointers[r] = band.data() + r * stride;
        int got = 0;
        while (got < want) {
            got += static_cast<int>(jpeg_read_scanlines(&info, pointers + got, static_cast<JDIMENSION>(want - got)));
        }
        if (sink != nullptr) sink->take(band.data(), stride, want);
        rows -= want;
    }
}

void JpegDecoder::decode(int top, int bottom, RowSink& sink) {
    State& s = *state_;
    int sent = 0;
    if (s.native) {
        sent = s.baseline.decode(top, bottom, sink);
        s.native = sent == bottom - top;
        // The corruption is after the rows sent so far, so libjpeg would produce the same rows; it decodes the rest.
        if (!s.native) s.begin_libjpeg();
    }
    if (!s.native) s.decode_libjpeg(top, bottom, sent, sink);
    jpeg_abort_decompress(&s.info);
}

// Decodes the rows [top + sent, bottom).
void JpegDecoder::State::decode_libjpeg(int top, int bottom, int sent, RowSink& sink) {
    if (setjmp(errors.jump)) fail();
    const int skip = std::max(0, top - kMargin);
    if (skip > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(skip));
    read_rows(nullptr, top - skip + sent);
    read_rows(&sink, bottom - top - sent);
    if (!whole) read_rows(nullptr, static_cast<int>(info.output_height) - bottom);
    expect_whole();
}

void JpegDecoder::State::expect_whole() {
    if (whole || !(errors.ran_short || lacks_scans(info))) return;
    refuse(cut_short(file_size));
}

Sampling JpegDecoder::sampling() const {
    const auto found = sampling_of(state_->info);
    if (!found) throw Fault(Code::declined, "JPEG of RGB or of an unusual sampling");
    return *found;
}

void JpegDecoder::decode_planes(std::uint8_t* out) {
    static_cast<void>(sampling());  // throws for planes of other sizes
    state_->read_planes(out);
    jpeg_abort_decompress(&state_->info);
}

// Reads rows of blocks, whose padding is dropped.
void JpegDecoder::State::read_planes(std::uint8_t* out) {
    constexpr int kMostRows = MAX_SAMP_FACTOR * DCTSIZE;
    const auto up = [](JDIMENSION a, int b) { return (a + b - 1) / b * b; };
    const std::size_t stride = std::size_t{DCTSIZE} * up(info.comp_info[0].width_in_blocks, MAX_SAMP_FACTOR);
    if (band.size() < stride * kMostRows * 3) band.resize(stride * kMostRows * 3);
    JSAMPROW rows[3][kMostRows];
    JSAMPARRAY planes[3];
    for (int i = 0; i < 3; ++i) {
        planes[i] = rows[i];
        for (int y = 0; y < kMostRows; ++y) rows[i][y] = band.data() + (i * kMostRows + y) * stride;
    }
    if (setjmp(errors.jump)) fail();
    info.raw_data_out = TRUE;
    info.dct_method = JDCT_ISLOW;
    info.do_block_smoothing = FALSE;
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
        const JDIMENSION at = info.output_scanline;
        const auto most = static_cast<JDIMENSION>(info.max_v_samp_factor * DCTSIZE);
        jpeg_read_raw_data(&info, planes, most);
        std::uint8_t* plane = out;
        for (int i = 0; i < info.num_components; ++i) {
            const jpeg_component_info& part = info.comp_info[i];
            const std::size_t width = part.downsampled_width, height = part.downsampled_height;
            const std::size_t first = at / most * (part.v_samp_factor * DCTSIZE);
            const std::size_t count = std::min<std::size_t>(part.v_samp_factor * DCTSIZE, height - first);
            for (std::size_t y = 0; y < count; ++y) std::memcpy(plane + (first + y) * width, rows[i][y], width);
            plane += width * height;
        }
    }
    expect_whole();
}

}  // namespace headrace
