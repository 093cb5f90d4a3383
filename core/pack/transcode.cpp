#include "pack/transcode.hpp"

#include <algorithm>
#include <csetjmp>
#include <iterator>
#include <string>

#include "jpeg/frame.hpp"
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

// Bytes in a restart interval. Each marker costs about four bytes, so this is one byte in a hundred; shorter intervals
// gain no time. The interval need not divide the MCU row, since the decoder jumps to any (benchmarks/pack_jpeg.py).
constexpr std::size_t kIntervalBytes = 400;
// Smaller files are decoded by libjpeg if their codes are their own: see kWorthTables in jpeg/entropy.cpp.
constexpr std::size_t kLeastBytes = 16 << 10;

class Transcoder {
public:
    Transcoder(std::span<const std::uint8_t> file, const Limits& limits) : file_(file), limits_(limits) {}
    ~Transcoder() { jpeg_destroy_decompress(&from_); }
    Transcoder(const Transcoder&) = delete;
    Transcoder& operator=(const Transcoder&) = delete;

    // Reads the file. Returns false if it stays as it is.
    bool read();
    bool has_grid() const;
    int mcus_across() const;
    int best_interval() const;
    std::size_t most_bytes() const;
    // Returns nothing if libjpeg cannot write the file.
    std::optional<Bytes> write(int restart_interval);

private:
    void read_header();
    void read_coefficients();
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
    return !errors_.damaged && !lacking && marker_count(from_) == markers_ && prepare();
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

std::optional<Bytes> Transcoder::write(int restart_interval) {
    if (setjmp(errors_.jump)) return fail(), std::nullopt;
    to_.begin(file_.size() + file_.size() / 8, restart_interval);
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

int Transcoder::best_interval() const {
    const std::size_t samples = from_.num_components == 1 ? 8 : 8 * from_.max_v_samp_factor;
    const std::size_t mcus = mcus_across() * ((from_.image_height + samples - 1) / samples);
    const std::size_t interval = (kIntervalBytes * mcus + file_.size() - 1) / file_.size();
    return static_cast<int>(std::min<std::size_t>(interval, mcus_across()));
}

std::size_t Transcoder::most_bytes() const {
    const double most = from_.progressive_mode ? 1.08 : standard_codes_ ? 1.0 : 1.03;
    return static_cast<std::size_t>(most * static_cast<double>(file_.size()));
}

}  // namespace

std::optional<Bytes> transcode_jpeg(std::span<const std::uint8_t> file, const Limits& limits,
                                    std::optional<int> restart_interval) {
    Transcoder transcoder(file, limits);
    if (!transcoder.read()) return std::nullopt;
    if (restart_interval) return transcoder.write(*restart_interval);
    if (file.size() < kLeastBytes || transcoder.has_grid()) return std::nullopt;
    for (int interval = transcoder.best_interval(); interval <= transcoder.mcus_across(); interval *= 2) {
        auto bytes = transcoder.write(interval);
        if (!bytes || bytes->size() <= transcoder.most_bytes()) return bytes;
    }
    return std::nullopt;
}

}  // namespace headrace
