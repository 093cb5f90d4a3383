#include "jpeg/libjpeg.hpp"

#include <algorithm>
#include <string>

// after jpeglib.h
#include <jerror.h>

namespace headrace {

namespace {

std::string precision_text(int bits) {
    return "JPEG with " + std::to_string(bits) + " bits a sample, expected 8; convert it to 8-bit JPEG or 16-bit PNG";
}

std::string size_text(const jpeg_decompress_struct& info) {
    return "JPEG of " + std::to_string(info.image_width) + "x" + std::to_string(info.image_height) + " pixels";
}

ErrorManager& manager_of(j_common_ptr info) { return *reinterpret_cast<ErrorManager*>(info->err); }

[[noreturn]] void leave(j_common_ptr info) {
    ErrorManager& errors = manager_of(info);
    if (errors.code == Code::ok) {
        errors.code = info->err->msg_code == JERR_OUT_OF_MEMORY ? Code::memory : Code::corrupt;
        info->err->format_message(info, errors.text);
        if (info->err->msg_code == JERR_BAD_PRECISION) {  // libjpeg-turbo before 3; later versions read the header
            errors.code = Code::unsupported;
            std::snprintf(errors.text, sizeof errors.text, "%s", precision_text(info->err->msg_parm.i[0]).c_str());
        }
    }
    std::longjmp(errors.jump, 1);
}

void note_warning(j_common_ptr info, int level) {
    if (level >= 0) return;
    const int warning = info->err->msg_code;
    ErrorManager& errors = manager_of(info);
    errors.ran_short |= warning == JWRN_HIT_MARKER;
    errors.damaged |= warning != JWRN_EXTRANEOUS_DATA && warning != JWRN_JPEG_EOF;
}

void stay_silent(j_common_ptr) {}

void check_scans(j_common_ptr info) {
    const auto* limit = reinterpret_cast<ScanLimit*>(info->progress);
    const int scan = reinterpret_cast<j_decompress_ptr>(info)->input_scan_number;
    if (scan <= limit->most) return;
    ErrorManager& errors = manager_of(info);
    errors.code = Code::limit;
    std::snprintf(errors.text, sizeof errors.text, "JPEG with more than %lld scans (max_jpeg_scans)",
                  static_cast<long long>(limit->most));
    leave(info);
}

// Huffman codes take at least one bit per block, so a small file cannot claim a large image's memory. Arithmetic coding
// has no such bound.
bool can_hold_its_blocks(const jpeg_decompress_struct& info, std::size_t bytes) {
    return info.arith_code || block_count(info) / 8 <= bytes;
}

}  // namespace

jpeg_error_mgr* ErrorManager::handler() {
    jpeg_std_error(&base);
    base.error_exit = leave;
    base.emit_message = note_warning;
    base.output_message = stay_silent;
    return &base;
}

void ErrorManager::reset() {
    code = Code::ok;
    ran_short = false;
    damaged = false;
}

void ScanLimit::watch(jpeg_decompress_struct& info, const Limits& limits) {
    base.progress_monitor = check_scans;
    most = limits.max_jpeg_scans;
    info.progress = &base;
}

std::optional<Fault> header_fault(const jpeg_decompress_struct& info, std::size_t file_bytes, const Limits& limits,
                                  bool cmyk) {
    if (info.data_precision != 8) return Fault(Code::unsupported, precision_text(info.data_precision));
    const bool four = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
    if (!cmyk && (four || info.num_components == 4)) return Fault(Code::declined, "CMYK JPEG");
    const std::int64_t pixels = static_cast<std::int64_t>(info.image_width) * info.image_height;
    if (pixels > limits.max_pixels) {
        return Fault(Code::limit, size_text(info) + ", more than max_pixels=" + std::to_string(limits.max_pixels));
    }
    if (!can_hold_its_blocks(info, file_bytes)) {
        return Fault(Code::corrupt, size_text(info) + ", which no " + std::to_string(file_bytes) +
                                        " bytes can hold: the file is damaged or cut short");
    }
    return std::nullopt;
}

std::uint64_t block_count(const jpeg_decompress_struct& info) {
    std::uint64_t blocks = 0;
    for (int i = 0; i < info.num_components; ++i) {
        blocks += std::uint64_t{info.comp_info[i].width_in_blocks} * info.comp_info[i].height_in_blocks;
    }
    return blocks;
}

// In entropy-coded data 0xFF is followed by 0 or a restart marker, so there are no false matches; nearly always the
// marker is the last two bytes.
bool has_end(std::span<const std::uint8_t> scan) {
    for (std::size_t i = scan.size(); i >= 2; --i) {
        if (scan[i - 1] == 0xD9 && scan[i - 2] == 0xFF) return true;
    }
    return false;
}

bool lacks_scans(const jpeg_decompress_struct& info) {
    for (int i = 0; i < info.num_components; ++i) {
        if (info.comp_info[i].quant_table == nullptr) return true;  // set by a component's first scan
        if (info.coef_bits == nullptr) continue;                    // not progressive
        const int* missing = info.coef_bits[i];
        if (std::any_of(missing, missing + DCTSIZE2, [](int bits) { return bits != 0; })) return true;
    }
    return false;
}

Fault cut_short(std::size_t file_bytes) {
    return {Code::corrupt,
            "JPEG cut short: the file ends after " + std::to_string(file_bytes) + " bytes, before the image does"};
}

}  // namespace headrace
