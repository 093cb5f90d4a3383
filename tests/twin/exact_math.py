"""exp and log from + - * / alone, as core/view/exact_math.hpp documents them."""

from __future__ import annotations

import math

LN2 = 0.6931471805599453
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def exact_exp(x: float) -> float:
    k = round(x / LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    total = 1.0
    for n in range(13, 0, -1):
        total = 1 + r / n * total
    return math.ldexp(total, k)


def exact_log(x: float) -> float:
    half, exponent = math.frexp(x)  # x = half * 2**exponent, half in [1/2, 1)
    m, e = (half * 2, exponent - 1) if half < 0.75 else (half, exponent)
    s = (m - 1) / (m + 1)
    total = 1 / 23
    for n in range(21, 0, -2):
        total = 1 / n + s * s * total
    return e * LN2_HIGH + (2 * s * total + e * LN2_LOW)
