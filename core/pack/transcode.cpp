#include "pack/transcode.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <iterator>
#include <string>

#include "jpeg/frame.hpp"
#include "jpeg/huffman.hpp"
#include "jpeg/libjpeg.hpp"
#include "pack/jpeg_output.hpp"

namespace headrace {

namespace {

using Bytes = std::vector<std::uint8_t>;

int marker_count(const jpeg_decompress_struct& info) {
    int count = 0;
    for (auto* marker = info.marker_list; marker != nullptr; marker = marker->next) ++count;
    return count;
}

bool same_code(const JHUFF_TBL* a, const JHUFF_TBL* b) {
    return a != nullptr && b != nullptr && std::equal(a->bits, std::end(a->bits), b->bits) &&
           std::equal(a->huffval, std::end(a->huffval), b->huffval);
}

// Bytes in a restart interval. Each marker costs about four bytes, so this is one byte in two hundred; intervals half
// as long gain 3 % of the time. The interval need not divide the MCU row, since the decoder jumps to any.
constexpr std::size_t kIntervalBytes = 800;
// Bytes that a marker costs: its own, the bits before it and longer DC differences.
constexpr int kMarkerBytes = 4;
// Smaller files gain too little for their markers.
constexpr std::size_t kLeastBytes = 16 << 10;
// From here on, files with standard codes may have codes of their own.
constexpr std::size_t kWorthOptimising = 200 << 10;

class Transcoder {
public:
    Transcoder(std::span<const std::uint8_t> file, const Limits& limits) : file_(file), limits_(limits) {}
    ~Transcoder() { jpeg_destroy_decompress(&from_); }
    Transcoder(const Transcoder&) = delete;
    Transcoder& operator=(const Transcoder&) = delete;

    // Reads the file. Returns false if it stays as it is.
    bool read();
    bool has_grid() const;
    // True if building tables costs no more than for the file as it is, or little next to the rest of its decode.
    bool worth_own_codes() const { return !standard_codes_ || file_.size() >= kWorthOptimising; }
    // Returns nothing if libjpeg cannot write the file.
    std::optional<Bytes> write(int restart_interval, const PhotoCodes*);
    // Returns nothing if the file would have too many bytes.
    std::optional<Bytes> write_bounded(const PhotoCodes*);

private:
    int mcus_across() const;
    int mcus() const;
    std::size_t most_bytes() const;
    void read_header();
    void read_coefficients();
    bool in_range();
    bool prepare();
    void fail();

    std::span<const std::uint8_t> file_;
    const Limits& limits_;
    ErrorManager errors_{};
    ScanLimit scans_{};
    jpeg_decompress_struct from_{};
    JpegOutput to_;
    jvirt_barray_ptr* coefficients_ = nullptr;
    int markers_ = 0;  // before the first scan
    bool whole_ = true, standard_codes_ = false;
};

bool Transcoder::read() {
    from_.err = errors_.handler();
    errors_.reset();
    read_header();
    if (const auto fault = header_fault(from_, file_.size(), limits_, true)) throw *fault;
    if (!sampling_of(from_)) return false;
    const std::uint64_t memory = block_count(from_) * sizeof(JBLOCK);
    if (memory > static_cast<std::uint64_t>(limits_.max_decode_bytes)) {
        throw Fault(Code::limit, "JPEG whose coefficients take " + std::to_string(memory) +
                                     " bytes, more than max_decode_bytes=" + std::to_string(limits_.max_decode_bytes));
    }
    read_coefficients();
    const bool lacking = lacks_scans(from_);
    if (!whole_ && (errors_.ran_short || lacking)) throw cut_short(file_.size());
    // Markers between scans would come before them.
    return !errors_.damaged && !lacking && marker_count(from_) == markers_ && in_range() && prepare();
}

void Transcoder::read_header() {
    if (setjmp(errors_.jump)) throw errors_.fault();
    jpeg_create_decompress(&from_);
    for (int i = 0; i < 16; ++i) jpeg_save_markers(&from_, JPEG_APP0 + i, 0xFFFF);
    jpeg_save_markers(&from_, JPEG_COM, 0xFFFF);
    jpeg_mem_src(&from_, file_.data(), static_cast<unsigned long>(file_.size()));
    jpeg_read_header(&from_, TRUE);
    markers_ = marker_count(from_);
    whole_ = has_end(file_.last(from_.src->bytes_in_buffer));
}

void Transcoder::read_coefficients() {
    if (setjmp(errors_.jump)) throw errors_.fault();
    scans_.watch(from_, limits_);
    coefficients_ = jpeg_read_coefficients(&from_);
}

// libjpeg writes a size without a code as no bits at all.
bool Transcoder::in_range() {
    if (setjmp(errors_.jump)) throw errors_.fault();
    int most_dc = 0, most_ac = 0;
    for (int i = 0; i < from_.num_components; ++i) {
        const jpeg_component_info& part = from_.comp_info[i];
        for (JDIMENSION y = 0; y < part.height_in_blocks; ++y) {
            const JBLOCKROW row =
                from_.mem->access_virt_barray(reinterpret_cast<j_common_ptr>(&from_), coefficients_[i], y, 1, FALSE)[0];
            for (JDIMENSION x = 0; x < part.width_in_blocks; ++x) {
                most_dc = std::max(most_dc, std::abs(int{row[x][0]}));
                for (int k = 1; k < DCTSIZE2; ++k) most_ac = std::max(most_ac, std::abs(int{row[x][k]}));
            }
        }
    }
    return most_dc <= 1 << (kMostDcBits - 1) && most_ac < 1 << kMostAcBits;
}

// Markers are copied, JFIF and Adobe's as well, so both files have the same colour space.
bool Transcoder::prepare() {
    if (setjmp(errors_.jump)) return fail(), false;
    to_.create(errors_);
    jpeg_copy_critical_parameters(&from_, &to_.info);
    standard_codes_ = same_code(from_.ac_huff_tbl_ptrs[0], to_.info.ac_huff_tbl_ptrs[0]);
    to_.info.write_JFIF_header = FALSE;
    to_.info.write_Adobe_marker = FALSE;
    return true;
}

std::optional<Bytes> Transcoder::write(int restart_interval, const PhotoCodes* codes) {
    if (setjmp(errors_.jump)) return fail(), std::nullopt;
    to_.begin(file_.size() + file_.size() / 8, restart_interval, codes);
    jpeg_write_coefficients(&to_.info, coefficients_);
    for (auto* marker = from_.marker_list; marker != nullptr; marker = marker->next) {
        jpeg_write_marker(&to_.info, marker->marker, marker->data, marker->data_length);
    }
    return to_.finish();
}

void Transcoder::fail() {
    if (errors_.code == Code::memory) throw errors_.fault();
}

int Transcoder::mcus_across() const {
    const int samples = from_.num_components == 1 ? 8 : 8 * from_.max_h_samp_factor;
    return (static_cast<int>(from_.image_width) + samples - 1) / samples;
}

bool Transcoder::has_grid() const {
    const bool one_scan = !from_.progressive_mode && !from_.arith_code && from_.input_scan_number == 1;
    return one_scan && from_.restart_interval > 0 && static_cast<int>(from_.restart_interval) < mcus_across();
}

int Transcoder::mcus() const {
    const int samples = from_.num_components == 1 ? 8 : 8 * from_.max_v_samp_factor;
    return mcus_across() * ((static_cast<int>(from_.image_height) + samples - 1) / samples);
}

std::optional<Bytes> Transcoder::write_bounded(const PhotoCodes* codes) {
    const int size = static_cast<int>(file_.size() / kIntervalBytes), rows = mcus() / mcus_across();
    const int interval = std::max(1, mcus() / std::max(size, rows));
    auto bytes = write(interval, codes);
    if (!bytes || bytes->size() <= most_bytes()) return bytes;
    // With as few markers as the excess asks for, and a row's at least.
    const auto excess = static_cast<int>((bytes->size() - most_bytes()) / kMarkerBytes);
    bytes = write(mcus() / std::max(mcus() / interval - excess - 1, rows), codes);
    if (bytes && bytes->size() > most_bytes()) return std::nullopt;
    return bytes;
}

std::size_t Transcoder::most_bytes() const {
    // Standard codes: the mean is below 1.
    const double most = from_.progressive_mode ? 1.08 : standard_codes_ ? 1.01 : 1.03;
    return static_cast<std::size_t>(most * static_cast<double>(file_.size()));
}

}  // namespace

std::optional<Bytes> transcode_jpeg(std::span<const std::uint8_t> file, const Limits& limits,
                                    std::optional<int> restart_interval) {
    Transcoder transcoder(file, limits);
    if (!transcoder.read()) return std::nullopt;
    if (restart_interval) return transcoder.write(*restart_interval, &kPhotoCodes);
    if (file.size() < kLeastBytes || transcoder.has_grid()) return std::nullopt;
    auto bytes = transcoder.write_bounded(&kPhotoCodes);
    if (bytes || !transcoder.worth_own_codes()) return bytes;
    return transcoder.write_bounded(nullptr);
}

}  // namespace headrace
