#include "tar/tar.hpp"

#include <algorithm>
#include <utility>

#include "common/fault.hpp"

namespace headrace {
namespace {

constexpr std::int64_t trailing_probe_bytes = 1 << 20;

std::int64_t padded(std::int64_t size) { return (size + tar_block_bytes - 1) / tar_block_bytes * tar_block_bytes; }

}  // namespace

TarScanner::TarScanner(const std::string& path) : path_(path), file_(path) {}

TarScanner::TarScanner(const std::string& name, std::int64_t size, RangeReader reader, GrowthSource growth)
    : path_(name), file_(size, std::move(reader), std::move(growth)) {}

bool TarScanner::advance(int headers) {
    for (int i = 0; i < headers; ++i)
        if (!step()) return false;
    return true;
}

bool TarScanner::step() {
    const std::uint8_t* block = file_.block(position_);
    if (block == nullptr) {
        // An archive without an end mark is complete, unless it ends inside a block or before an announced member.
        const std::string rest = file_.read(position_, tar_block_bytes);
        if (rest.find_first_not_of('\0') != std::string::npos)
            fail("is cut short: expected a header of 512 bytes, got " + std::to_string(rest.size()));
        if (owed_) fail("is cut short: expected the member that a long name or PAX record announces, got the end");
        return false;
    }
    if (is_zero_block(block)) return at_zero_block();
    TarHeader header;
    try {
        header = read_tar_header(block);
    } catch (const Fault& fault) {
        std::string start(reinterpret_cast<const char*>(block), 16);
        for (char& c : start)
            if (c < 0x20 || c > 0x7e) c = '.';
        fail("expected a tar header, got a block that begins with '" + start + "': " + fault.what());
    }
    at_header(header);
    return true;
}

bool TarScanner::at_zero_block() {
    if (owed_) fail("expected the member that a long name or PAX record announces, got the end mark");
    const std::uint8_t* second = file_.block(position_ + tar_block_bytes);
    // Most readers silently stop here and lose the rest.
    if (second != nullptr && !is_zero_block(second)) fail("a lone block of zeros is followed by data: expected two");
    const std::int64_t end = std::min(position_ + 2 * tar_block_bytes, file_.size());
    if (file_.read(end, trailing_probe_bytes).find_first_not_of('\0') != std::string::npos)
        members_.bytes_after_end = file_.size() - end;
    return false;
}

void TarScanner::at_header(const TarHeader& header) {
    const std::int64_t data = position_ + tar_block_bytes;
    switch (header.kind) {
        case TarKind::long_name:
        case TarKind::long_link: {
            const bool is_name = header.kind == TarKind::long_name;
            std::string text = record(header, is_name ? "a long name" : "a long link");
            text.resize(std::min(text.size(), text.find('\0')));
            (is_name ? long_name_ : long_link_) = std::move(text);
            owed_ = true;
            break;
        }
        case TarKind::pax:
        case TarKind::pax_global: {
            const bool global = header.kind == TarKind::pax_global;
            try {
                read_pax_records(record(header, "PAX records"), global ? global_ : local_);
            } catch (const Fault& fault) {
                if (fault.code == Code::corrupt) fail(fault.what());
                throw;
            }
            owed_ = owed_ || !global;
            break;
        }
        default:
            add_member(header);
            return;
    }
    position_ = end_of_data(data, header.size, header.name);
}

std::string TarScanner::name_of(const TarHeader& header) const {
    std::string name = local_.path    ? *local_.path
                       : long_name_   ? *long_name_
                       : global_.path ? *global_.path
                                      : header.name;
    // Like tarfile, so that a folder has the same name in every format.
    if (header.kind == TarKind::directory || local_.path || global_.path) name.resize(name.find_last_not_of('/') + 1);
    return name;
}

std::string TarScanner::link_of(const TarHeader& header) const {
    return local_.link_path    ? *local_.link_path
           : long_link_        ? *long_link_
           : global_.link_path ? *global_.link_path
                               : header.link;
}

void TarScanner::add_member(const TarHeader& header) {
    const std::string name = name_of(header);
    const bool sparse = header.kind == TarKind::sparse || local_.sparse || global_.sparse;
    const bool has_data =
        header.kind == TarKind::file || header.kind == TarKind::sparse || header.kind == TarKind::unknown;
    const std::int64_t size = has_data ? local_.size.value_or(global_.size.value_or(header.size)) : 0;
    std::int64_t data = position_ + tar_block_bytes;
    bool more_map = header.sparse_continued;
    while (more_map) {
        const std::uint8_t* map = file_.block(data);
        if (map == nullptr) fail("is cut short inside the sparse map of '" + name + "'");
        more_map = sparse_map_continues(map);
        data += tar_block_bytes;
    }
    const std::int64_t next = end_of_data(data, size, name);
    members_.check.push_back(header.check);
    if (header.kind == TarKind::link) {
        members_.links += link_of(header);
        members_.link_offsets.push_back(members_.links.size());
        members_.link_of.push_back(static_cast<std::int64_t>(members_.size.size()));
    }
    members_.names += name;
    members_.name_offsets.push_back(members_.names.size());
    members_.type.push_back(static_cast<std::uint8_t>(sparse ? 'S' : header.type));
    members_.data_offset.push_back(data);
    members_.size.push_back(size);
    count(sparse ? TarKind::sparse : header.kind);
    position_ = next;
    owed_ = false;
    long_name_.reset();
    long_link_.reset();
    local_ = {};
}

void TarScanner::count(TarKind kind) {
    if (kind == TarKind::directory) ++members_.directories;
    if (kind == TarKind::link) ++members_.hard_and_soft_links;
    if (kind == TarKind::device) ++members_.devices;
    if (kind == TarKind::sparse) ++members_.sparse;
    if (kind == TarKind::unknown) ++members_.unknown;
}

std::string TarScanner::record(const TarHeader& header, const std::string& name) {
    if (header.size > max_tar_record_bytes)
        throw Fault(Code::limit, path_ + ": " + name + " at byte " + std::to_string(position_) + " has " +
                                     std::to_string(header.size) + " bytes, more than max_tar_record_bytes = " +
                                     std::to_string(max_tar_record_bytes));
    end_of_data(position_ + tar_block_bytes, header.size, name);
    return file_.read(position_ + tar_block_bytes, header.size);
}

std::int64_t TarScanner::end_of_data(std::int64_t start, std::int64_t size, const std::string& name) const {
    const std::int64_t there = std::max<std::int64_t>(0, file_.size() - start);
    if (size > there)
        fail("is cut short: expected " + std::to_string(size) + " bytes of '" + name + "', got " +
             std::to_string(there));
    return start + padded(size);
}

void TarScanner::fail(const std::string& what) const {
    throw Fault(Code::corrupt, path_ + ": at byte " + std::to_string(position_) + ": " + what);
}

}  // namespace headrace
