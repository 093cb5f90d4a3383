#include "zip/directory.hpp"

#include <algorithm>
#include <string_view>

#include "common/fault.hpp"
#include "tar/window.hpp"
#include "zip/bytes.hpp"
#include "zip/member.hpp"
#include "zip/names.hpp"

namespace headrace {
namespace {

using zip::u16;
using zip::u32;
using zip::u64;

constexpr std::string_view kEndSignature("PK\5\6"), kEnd64Signature("PK\6\6"), kLocator64Signature("PK\6\7"),
    kEntrySignature("PK\1\2");
constexpr std::int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kEntryBytes = 46;
constexpr std::int64_t kLongestComment = 65'535;
constexpr std::uint32_t kElsewhere = 0xffffffff;  // the number is in the ZIP64 field
constexpr std::uint32_t kUtf8Name = 0x800;
constexpr std::uint32_t kZip64Field = 0x0001, kUnicodePathField = 0x7075;

// Sequential reader through a window: a directory may claim to be as large as the file.
class Stream {
public:
    Stream(const FileWindow& file, std::int64_t start, std::int64_t end) : file_(file), at_(start), end_(end) {}

    std::int64_t at() const { return at_; }
    std::int64_t left() const { return end_ - at_; }

    // Returns the next `count` bytes, valid until the next call; fewer only at the end.
    std::string_view take(std::int64_t count) {
        count = std::min(count, left());
        if (at_ + count > start_ + static_cast<std::int64_t>(window_.size())) {
            start_ = at_;
            window_ = file_.read(at_, std::min(left(), std::max(count, kWindowBytes)));
        }
        const auto taken = std::string_view(window_).substr(at_ - start_, count);
        at_ += count;
        return taken;
    }

private:
    static constexpr std::int64_t kWindowBytes = 1 << 20;
    const FileWindow& file_;
    std::int64_t at_, end_;
    std::string window_;
    std::int64_t start_ = 0;
};

class DirectoryReader {
public:
    explicit DirectoryReader(const std::string& path) : path_(path), file_(path) {}

    ZipMembers read() {
        find();
        Stream stream(file_, members_.start, members_.start + bytes_);
        while (stream.left() > 0) take_entry(stream);
        return std::move(members_);
    }

private:
    [[noreturn]] void fail(const std::string& why) const { throw Fault(Code::corrupt, path_ + ": " + why); }

    // Finds the directory's offset and length, and the offset of the zip's first byte: other bytes may precede it, and
    // offsets in the directory count from it.
    void find() {
        const std::int64_t tail_bytes = std::min(file_.size(), kEndBytes + kLongestComment);
        const std::string tail = file_.read(file_.size() - tail_bytes, tail_bytes);
        const std::size_t at = find_end(tail);
        std::int64_t end = file_.size() - tail_bytes + static_cast<std::int64_t>(at);
        const std::string_view record = std::string_view(tail).substr(at, kEndBytes);
        std::uint64_t bytes = u32(record, 12), offset = u32(record, 16);
        const std::string large =
            file_.read(std::max<std::int64_t>(0, end - kLocator64Bytes - kEnd64Bytes), kEnd64Bytes + kLocator64Bytes);
        if (is_large(large)) {
            bytes = u64(large, 40);
            offset = u64(large, 48);
            end -= kEnd64Bytes + kLocator64Bytes;
        } else if (u16(record, 4) != 0) {
            throw Fault(Code::unsupported,
                        path_ + ": it is one part of a zip that was split; join them with `zip -s 0`");
        }
        const auto most = static_cast<std::uint64_t>(end);
        if (bytes > most || offset > most - bytes) fail("its central directory does not lie before its end record");
        bytes_ = static_cast<std::int64_t>(bytes);
        members_.start = end - bytes_;
        added_ = members_.start - static_cast<std::int64_t>(offset);
    }

    std::size_t find_end(std::string_view tail) const {
        const auto size = static_cast<std::int64_t>(tail.size());
        if (size >= kEndBytes) {
            const std::size_t last = size - kEndBytes;
            if (tail.substr(last).starts_with(kEndSignature) && tail.ends_with(std::string_view("\0\0", 2)))
                return last;
            const std::size_t at = tail.rfind(kEndSignature, last);
            if (at != std::string_view::npos) return at;
        }
        fail("expected a zip, got a file without the end record of one");
    }

    // True if `bytes` holds a ZIP64 end record followed by its locator.
    bool is_large(std::string_view bytes) const {
        if (static_cast<std::int64_t>(bytes.size()) < kEnd64Bytes + kLocator64Bytes) return false;
        return bytes.starts_with(kEnd64Signature) && bytes.substr(kEnd64Bytes).starts_with(kLocator64Signature);
    }

    void take_entry(Stream& stream) {
        const std::int64_t at = stream.at();
        const std::string head(stream.take(kEntryBytes));
        if (!head.starts_with(kEntrySignature)) {
            fail("expected an entry of the central directory at byte " + std::to_string(at));
        }
        if (static_cast<std::int64_t>(head.size()) < kEntryBytes) fail("its central directory ends within an entry");
        const std::uint32_t name_bytes = u16(head, 28), extra_bytes = u16(head, 30), comment_bytes = u16(head, 32);
        if (name_bytes + extra_bytes + comment_bytes > stream.left())
            fail("its central directory ends within an entry");
        const std::string_view tail = stream.take(name_bytes + extra_bytes + comment_bytes);
        add(head, tail.substr(0, name_bytes), tail.substr(name_bytes, extra_bytes));
    }

    void add(std::string_view head, std::string_view raw_name, std::string_view extra) {
        const std::uint32_t flags = u16(head, 8), method = u16(head, 10);
        Entry entry{u32(head, 24), u32(head, 20), u32(head, 42), zip_name(raw_name, flags & kUtf8Name)};
        read_extra(extra, raw_name, entry);
        members_.names += entry.name;
        members_.name_offsets.push_back(members_.names.size());
        members_.size.push_back(number(entry.size));
        members_.packed.push_back(number(entry.packed));
        members_.offset.push_back(number(entry.offset) + added_);
        members_.method.push_back(method);
        members_.crc.push_back(u32(head, 16));
        members_.flags.push_back(flags);
        members_.check.push_back(
            zip_header_check(method, {reinterpret_cast<const std::uint8_t*>(raw_name.data()), raw_name.size()}));
    }

    struct Entry {
        std::uint64_t size, packed, offset;
        std::string name;
    };

    void read_extra(std::string_view extra, std::string_view raw_name, Entry& entry) const {
        while (extra.size() >= 4) {
            const std::uint32_t id = u16(extra, 0), bytes = u16(extra, 2);
            if (bytes > extra.size() - 4) fail("an entry has an extra field that is longer than all of them together");
            const std::string_view field = extra.substr(4, bytes);
            if (id == kZip64Field) read_zip64(field, entry);
            if (id == kUnicodePathField) read_unicode_path(field, raw_name, entry);
            extra.remove_prefix(4 + bytes);
        }
    }

    // The field holds, in this order, the numbers that the entry marks as kElsewhere.
    void read_zip64(std::string_view field, Entry& entry) const {
        for (std::uint64_t* number : {&entry.size, &entry.packed, &entry.offset}) {
            if (*number != kElsewhere) continue;
            if (field.size() < 8) fail("an entry has a ZIP64 field without the size that it has to give");
            *number = u64(field, 0);
            field.remove_prefix(8);
        }
    }

    // Info-ZIP's field: a version, the CRC of the replaced name, and the name in UTF-8.
    static void read_unicode_path(std::string_view field, std::string_view raw_name, Entry& entry) {
        if (field.size() <= 5 || field[0] != 1) return;
        const auto* name = reinterpret_cast<const std::uint8_t*>(raw_name.data());
        if (u32(field, 1) == zip_header_check(0, {name, raw_name.size()})) entry.name = zip_name(field.substr(5), true);
    }

    std::int64_t number(std::uint64_t value) const {
        // Small enough that two of them can be added without overflow.
        if (value > std::uint64_t{1} << 62) fail("its central directory names a size or a place beyond 2**62 bytes");
        return static_cast<std::int64_t>(value);
    }

    std::string path_;
    FileWindow file_;
    ZipMembers members_;
    std::int64_t bytes_ = 0, added_ = 0;
};

}  // namespace

ZipMembers read_zip_directory(const std::string& path) { return DirectoryReader(path).read(); }

}  // namespace headrace
