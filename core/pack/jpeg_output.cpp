#include "pack/jpeg_output.hpp"

#include <algorithm>
#include <new>
#include <utility>

// after jpeglib.h
#include <jerror.h>

namespace headrace {

namespace {

bool resize(std::vector<std::uint8_t>& bytes, std::size_t size) {
    try {
        bytes.resize(size);
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

}  // namespace

void JpegOutput::create(ErrorManager& errors) {
    info.err = &errors.base;
    jpeg_create_compress(&info);
    info.client_data = this;
}

void JpegOutput::begin(std::size_t expected_bytes, int restart_interval, const PhotoCodes* codes) {
    info.optimize_coding = codes == nullptr ? TRUE : FALSE;
    if (codes != nullptr) set(*codes);
    info.arith_code = FALSE;
    info.restart_interval = static_cast<unsigned>(restart_interval);
    info.restart_in_rows = 0;
    bytes_.resize(std::max<std::size_t>(expected_bytes, 4096));
    target_.next_output_byte = bytes_.data();
    target_.free_in_buffer = bytes_.size();
    target_.init_destination = [](j_compress_ptr) {};
    target_.term_destination = [](j_compress_ptr) {};
    target_.empty_output_buffer = grow;
    info.dest = &target_;
}

void JpegOutput::set(const PhotoCodes& codes) {
    for (int i = 0; i < 4; ++i) {
        JHUFF_TBL*& table = (i % 2 == 0 ? info.dc_huff_tbl_ptrs : info.ac_huff_tbl_ptrs)[i / 2];
        if (table == nullptr) table = jpeg_alloc_huff_table(reinterpret_cast<j_common_ptr>(&info));
        std::copy(codes[i].counts.begin(), codes[i].counts.end(), table->bits + 1);
        std::copy(codes[i].symbols.begin(), codes[i].symbols.end(), table->huffval);
    }
}

// libjpeg calls this when the buffer is full, whatever free_in_buffer says.
boolean JpegOutput::grow(j_compress_ptr info) {
    auto& self = *static_cast<JpegOutput*>(info->client_data);
    const std::size_t used = self.bytes_.size();
    if (!resize(self.bytes_, 2 * used)) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    self.target_.next_output_byte = self.bytes_.data() + used;
    self.target_.free_in_buffer = used;
    return TRUE;
}

std::vector<std::uint8_t> JpegOutput::finish() {
    jpeg_finish_compress(&info);
    bytes_.resize(bytes_.size() - target_.free_in_buffer);
    return std::move(bytes_);
}

}  // namespace headrace
