// AVX2: the common source, vectorized by the compiler, and blur by words.
#if defined(__x86_64__)
#include <immintrin.h>

#include "augment/augment_kernels_of.hpp"
#include "augment/warp_kernels.hpp"

namespace headrace {
namespace {
#include "augment/augment_kernels.inl"
#include "augment/blur_words.inl"
#include "augment/warp_kernels.inl"

struct Words16 {
    static constexpr std::size_t kCount = 16;
    __m256i v;
    static Words16 load(const std::int16_t* at) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))}; }
    static Words16 all(std::int16_t value) { return {_mm256_set1_epi16(value)}; }
    static Words16 widen(const std::uint8_t* at) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        return {_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 6)};
    }
    void store(std::int16_t* at) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), v); }
    void narrow(std::uint8_t* at) const {
        const __m256i whole = _mm256_srai_epi16(_mm256_adds_epi16(v, _mm256_set1_epi16(32)), 6);
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(whole, whole), 0x08);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(bytes));
    }
    Words16 operator+(Words16 other) const { return {_mm256_add_epi16(v, other.v)}; }
    Words16 operator*(Words16 weight) const { return {_mm256_mulhrs_epi16(v, weight.v)}; }
};

constexpr AugmentKernels wide_table() {
    AugmentKernels table = kTable;
    table.blur = blur_by_words<Words16>;
    return table;
}

constexpr AugmentKernels kWide = wide_table();

}  // namespace

const AugmentKernels& augment_kernels_avx2() { return kWide; }
const WarpKernels& warp_kernels_avx2() { return warping::kTable; }

}  // namespace headrace

#endif
