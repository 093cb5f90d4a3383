// Cache files: for any content, finding, reading and writing entries stays inside the file; entries that were put are
// returned; and returned data matches its entry's checksum.
#include <libdeflate.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "cache/store.hpp"
#include "fuzz/input.hpp"
#include "fuzz/require.hpp"

namespace headrace::fuzz {
namespace {

constexpr std::uint64_t kEntries = 16, kLimit = 1 << 20;
constexpr std::size_t kMostBytes = 1 << 16;

template <typename T>
void sign(std::vector<std::uint8_t>& file, std::uint64_t at, auto change, auto... index) {
    if (file.size() < at + sizeof(T)) return;
    T value;
    std::memcpy(&value, file.data() + at, sizeof value);
    change(value);
    value.check = check_of(index..., value);
    std::memcpy(file.data() + at, &value, sizeof value);
}

// Sets correct checksums, so that the code after their checks is reached.
void sign_all(std::vector<std::uint8_t>& file, std::uint32_t version) {
    sign<CacheHeader>(file, 0, [version](CacheHeader& header) {
        std::memcpy(header.magic, "hr-cache", sizeof header.magic);
        header.version = version;
        header.entries = kEntries;
        header.key = header.stamp = CacheDigest{};
    });
    sign<CacheTail>(file, kCacheTailAt, [](CacheTail&) {});
    for (std::uint64_t i = 0; i < kEntries; ++i) {
        sign<CacheEntry>(file, kCacheIndexAt + i * sizeof(CacheEntry), [](CacheEntry&) {}, i);
    }
}

int memory_of(const std::vector<std::uint8_t>& file) {
    const int fd = memfd_create("cache", MFD_CLOEXEC);
    require(fd >= 0, "memfd_create");
    require(file.empty() || pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()), "pwrite");
    return fd;
}

void look(Store& store, std::uint64_t index, std::size_t file_bytes) {
    const auto item = store.find(index);
    if (!item) return;
    require(item->bytes == 0 || item->offset + item->bytes <= std::max<std::size_t>(file_bytes, kLimit),
            "an entry inside the file");
    if (item->bytes > kMostBytes) return;
    std::vector<std::uint8_t> data(item->bytes + 1);
    const std::size_t half = item->bytes / 2;
    const Part parts[] = {{data.data(), half}, {data.data() + half, item->bytes - half}};
    if (!store.read(index, *item, parts)) return;
    require(libdeflate_crc32(0, data.data(), item->bytes) == item->data_check, "bytes of the checksum in the index");
}

void put(Store& store, std::uint64_t index) {
    const std::uint8_t data[] = {1, 2, 3, static_cast<std::uint8_t>(index)};
    const ConstPart part(data);
    if (!store.put(index, {&part, 1}, 5, 6)) return;
    const auto item = store.find(index);
    std::uint8_t got[sizeof data];
    const Part into(got);
    require(item && item->bytes == sizeof data && item->width == 5 && item->height == 6, "what was put is found");
    require(store.read(index, *item, {&into, 1}) && std::memcmp(got, data, sizeof data) == 0, "and is what was put");
    require(item->offset + item->bytes <= kLimit, "below the limit");
}

void run(Input input) {
    const std::uint8_t flags = input.byte();
    const bool anew = flags & 1, reuses = flags & 2;
    const std::uint32_t version = reuses ? kReusedCacheVersion : kCacheVersion;
    std::vector<std::uint8_t> file(input.rest().begin(), input.rest().end());
    if (anew) sign_all(file, version);
    const int fd = memory_of(file);
    if (CacheFile(fd).kind(kEntries, {}, {}, version) != CacheKind::ours) {
        close(fd);
        return;
    }
    Store store(fd, kEntries, kLimit, reuses ? Store::Space::reused : Store::Space::grows);
    store.recover();
    (void)store.used_bytes();
    (void)store.taken(0, kEntries);
    for (std::uint64_t i = 0; i <= kEntries; ++i) look(store, i, file.size());
    for (std::uint64_t i = 0; i <= kEntries; ++i) put(store, i);
    std::array<std::int64_t, kEntries> all;
    std::iota(all.begin(), all.end(), 0);
    store.evict(all);
    store.resume();
    for (std::uint64_t i = 0; i < kEntries; ++i) put(store, i);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    headrace::fuzz::run({data, size});
    return 0;
}
