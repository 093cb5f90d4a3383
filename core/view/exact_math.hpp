// Arithmetic with the same bits on every machine and in NumPy: only + - * / and rounding, in double.
// libm's exp and log differ in the last bit between versions, and NumPy's between instruction sets.
//
// Relative error below 1e-15 where these are used (|x| < 700 for exp, positive normal numbers for log).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace headrace {

// Rounds to the nearest integer, ties to even, like Python's round(). std::floor is exact and ignores rounding modes.
inline double round_half_even(double x) {
    const double below = std::floor(x);
    const double rest = x - below;
    const bool up = rest > 0.5 || (rest == 0.5 && std::floor(below / 2) * 2 != below);
    return up ? below + 1 : below;
}

// ln 2 in two parts; the first has 33 bits, so that its product with an exponent is exact (fdlibm's constants).
inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// e^x = 2^k e^r with |r| <= ln 2 / 2, and the Taylor series of e^r to r^13 (the next term is below 5e-18).
inline double exact_exp(double x) {
    const double k = round_half_even(x / 0x1.62e42fefa39efp-1);
    const double r = (x - k * kLn2High) - k * kLn2Low;
    double sum = 1;
    for (int n = 13; n >= 1; --n) sum = 1 + r / n * sum;
    return sum * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023) << 52);
}

// x = m 2^e with m in [3/4, 3/2), and ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 1/5, as a series to s^23
// (the next term is below 2e-19).
inline double exact_log(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    double e = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
    double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
    if (m >= 1.5) {
        m = m / 2;
        e = e + 1;
    }
    const double s = (m - 1) / (m + 1);
    const double square = s * s;
    double sum = 1.0 / 23;
    for (int n = 21; n >= 1; n -= 2) sum = 1.0 / n + square * sum;
    return e * kLn2High + (2 * s * sum + e * kLn2Low);
}

}  // namespace headrace
