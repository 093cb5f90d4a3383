// Stress test of a cache: threads find and put the same entries in two stores of one file, beyond the limit, while
// others read counters and, with space reuse, evict entries. Every read must return the bytes that were put.
//
//     stress_cache_store [ROUNDS [SEED]]        exit code 0: success; ThreadSanitizer adds its own
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "cache/store.hpp"

namespace headrace::stress {
namespace {

constexpr std::uint64_t kEntries = 300;
constexpr std::size_t kMostBytes = 5000, kRoomFor = 200;
constexpr int kThreads = 4;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "stress: %s\n", what);
    std::abort();
}

std::vector<std::uint8_t> value_of(std::uint64_t index) {
    std::vector<std::uint8_t> value(1 + index * 37 % kMostBytes);
    std::iota(value.begin(), value.end(), static_cast<std::uint8_t>(index));
    return value;
}

void look(Store& store, std::uint64_t index, Store::Space space) {
    const std::vector<std::uint8_t> expected = value_of(index);
    if (const auto item = store.find(index)) {
        require(item->bytes == expected.size(), "an entry of its own length");
        std::vector<std::uint8_t> got(item->bytes);
        const Part part(got);
        const bool is_read = store.read(index, *item, {&part, 1});
        // Another thread may evict a found entry and reuse its space before the read: a miss, never other bytes.
        require(is_read || space == Store::Space::reused, "an entry that nobody drops");
        require(!is_read || got == expected, "an entry as it was put");
        return;
    }
    const ConstPart part(expected);
    store.put(index, {&part, 1});
}

void drop_some(Store& store, std::mt19937& rng) {
    std::array<std::int64_t, 8> some;
    for (std::int64_t& index : some) index = static_cast<std::int64_t>(rng() % kEntries);
    store.evict(some);
    store.resume();
}

void work(std::vector<std::unique_ptr<Store>>& stores, unsigned seed, Store::Space space) {
    std::mt19937 rng(seed);
    std::vector<std::uint64_t> order(kEntries);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, rng);
    for (const std::uint64_t index : order) {
        Store& store = *stores[rng() % stores.size()];
        look(store, index, space);
        if (index % 8 == 0) drop_some(store, rng);
        if (index % 16 == 0) (void)store.counts();
        if (index % 16 == 1) require(store.used_bytes() <= store.limit_bytes(), "no more than the limit");
    }
}

void round(unsigned seed, Store::Space space) {
    const int fd = memfd_create("cache", MFD_CLOEXEC);
    const auto version = space == Store::Space::grows ? kCacheVersion : kReusedCacheVersion;
    require(fd >= 0 && CacheFile(fd).make(kEntries, {}, {}, version) == 0, "a cache");
    std::vector<std::unique_ptr<Store>> stores;
    for (const int each : {fd, dup(fd)}) {
        const std::uint64_t limit = cache_data_at(kEntries) + SpaceMap::kMapBytes + kRoomFor * kMostBytes / 2;
        stores.push_back(std::make_unique<Store>(each, kEntries, limit, space));
    }
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { work(stores, seed * kThreads + i, space); });
    for (std::thread& thread : threads) thread.join();
    std::int64_t damaged = 0;
    for (const auto& store : stores) damaged += store->counts().damaged;
    require(damaged == 0, "nothing damaged");
}

}  // namespace
}  // namespace headrace::stress

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
    const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1;
    for (const auto space : {headrace::Store::Space::grows, headrace::Store::Space::reused}) {
        for (int i = 0; i < rounds; ++i) headrace::stress::round(seed + i, space);
    }
    std::puts("caches: all was right");
}
