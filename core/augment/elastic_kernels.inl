// Loops of elastic displacements: noise and its weighted sums. Included by warp_kernels.inl.

// Returns a multiple of 2^-23 in [-1, 1), from the upper 24 bits.
inline float signed_unit(std::uint32_t word) {
    return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-23F - 1.0F;
}

inline void noise_of_block(std::uint64_t key, std::size_t i, float* xs, float* ys) {
    std::uint32_t a = static_cast<std::uint32_t>(i / 2), b = static_cast<std::uint32_t>(i / 2 >> 32), c = 0, d = 0;
    auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t first = std::uint64_t{0xD2511F53} * a, second = std::uint64_t{0xCD9E8D57} * c;
        a = static_cast<std::uint32_t>(second >> 32) ^ b ^ key0;
        b = static_cast<std::uint32_t>(second);
        c = static_cast<std::uint32_t>(first >> 32) ^ d ^ key1;
        d = static_cast<std::uint32_t>(first);
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    xs[i] = signed_unit(a);
    ys[i] = signed_unit(b);
    xs[i + 1] = signed_unit(c);
    ys[i + 1] = signed_unit(d);
}

#if defined(__AVX2__)
#if defined(__AVX512F__)
constexpr int kBlocks = 8;
#else
constexpr int kBlocks = 4;
#endif
// One block per 64-bit lane: products fill it, and only the lower half of an operand counts.
using Lanes = std::uint64_t __attribute__((vector_size(8 * kBlocks)));
using LaneInts = std::int32_t __attribute__((vector_size(8 * kBlocks)));
using LaneFloats = float __attribute__((vector_size(8 * kBlocks)));

inline Lanes products(Lanes lanes, std::uint64_t by) {
#if defined(__AVX512F__)
    return reinterpret_cast<Lanes>(
        _mm512_mul_epu32(reinterpret_cast<__m512i>(lanes), _mm512_set1_epi64(static_cast<long long>(by))));
#else
    return reinterpret_cast<Lanes>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(lanes), _mm256_set1_epi64x(static_cast<long long>(by))));
#endif
}

// Stores the lower halves of `even` and `odd`, interleaved.
inline void put_units(Lanes even, Lanes odd, float* out) {
    const auto words = reinterpret_cast<LaneInts>((even & 0xFFFFFFFF) >> 8 | (odd & 0xFFFFFF00) << 24);
    const LaneFloats units = __builtin_convertvector(words, LaneFloats) * 0x1p-23F - 1.0F;
    std::memcpy(out, &units, sizeof(units));
}

// Fills whole vectors of blocks. Returns the number of values done.
inline std::size_t noise_of_lanes(std::uint64_t key, std::size_t count, float* xs, float* ys) {
    Lanes counters{};
    for (int lane = 0; lane < kBlocks; ++lane) counters[lane] = static_cast<std::uint64_t>(lane);
    std::size_t i = 0;
    for (; i + 2 * kBlocks <= count; i += 2 * kBlocks, counters += kBlocks) {
        Lanes a = counters, b = counters >> 32, c{}, d{};
        auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) {
            const Lanes first = products(a, 0xD2511F53), second = products(c, 0xCD9E8D57);
            a = second >> 32 ^ b ^ key0;
            b = second;
            c = first >> 32 ^ d ^ key1;
            d = first;
            key0 += 0x9E3779B9;
            key1 += 0xBB67AE85;
        }
        put_units(a, c, xs + i);
        put_units(b, d, ys + i);
    }
    return i;
}
#else
inline std::size_t noise_of_lanes(std::uint64_t, std::size_t, float*, float*) { return 0; }
#endif

void noise(std::uint64_t key, std::size_t count, float* xs, float* ys) {
    for (std::size_t i = noise_of_lanes(key, count, xs, ys); i + 1 < count; i += 2) noise_of_block(key, i, xs, ys);
}

// Explicit vector of floats: compilers keep the sums of plain loops in memory.
#if defined(__AVX512F__)
constexpr int kFloats = 16;
#elif defined(__AVX2__)
constexpr int kFloats = 8;
#else
constexpr int kFloats = 4;
#endif
using Floats = float __attribute__((vector_size(sizeof(float) * kFloats)));

inline Floats floats_at(const float* at) {
    Floats values;
    std::memcpy(&values, at, sizeof(values));
    return values;
}

template <int vectors>
inline void symmetric_sums(const float* at, std::ptrdiff_t step, const float* weights, int taps, float* out) {
    Floats sums[vectors];
    for (int v = 0; v < vectors; ++v) sums[v] = weights[0] * floats_at(at + kFloats * v);
    for (int tap = 1; tap < taps; ++tap) {
        const float *before = at - tap * step, *after = at + tap * step;
        for (int v = 0; v < vectors; ++v)
            sums[v] += weights[tap] * (floats_at(before + kFloats * v) + floats_at(after + kFloats * v));
    }
    std::memcpy(out, sums, sizeof(sums));
}

void symmetric_sum(const float* at, std::ptrdiff_t step, const float* weights, int taps, int count, float* out) {
    int i = 0;
    for (; i + 4 * kFloats <= count; i += 4 * kFloats) symmetric_sums<4>(at + i, step, weights, taps, out + i);
    for (; i + 2 * kFloats <= count; i += 2 * kFloats) symmetric_sums<2>(at + i, step, weights, taps, out + i);
    for (; i + kFloats <= count; i += kFloats) symmetric_sums<1>(at + i, step, weights, taps, out + i);
    for (; i < count; ++i) {
        float sum = weights[0] * at[i];
        for (int tap = 1; tap < taps; ++tap) sum = sum + weights[tap] * (at[i - tap * step] + at[i + tap * step]);
        out[i] = sum;
    }
}
