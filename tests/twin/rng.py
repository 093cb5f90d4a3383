"""Philox4x32-10, the key hash and the keyed permutation, in numpy and Python ints."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MASK32 = np.uint64(0xFFFFFFFF)
MASK64 = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def philox(key: int, counter: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """uint32[..., 4] from uint32[..., 4]; words held in uint64 so that products are whole."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        high0, high1 = p0 >> np.uint64(32), p1 >> np.uint64(32)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint64(k0), p1 & MASK32, high0 ^ c3 ^ np.uint64(k1), p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def mix64(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def hash64(a: int, b: int) -> int:
    return mix64(((mix64((a + GAMMA) & MASK64) ^ b) + GAMMA) & MASK64)


def permute(n: int, key: int, position: int) -> int:
    bits = max(2, (n - 1).bit_length())
    high_bits = bits // 2
    low_bits = bits - high_bits
    keys = [hash64(key, r) for r in range(32 if bits < 16 else 12)]
    x = position
    while True:
        high, low = x >> low_bits, x % (1 << low_bits)
        for even, odd in zip(keys[::2], keys[1::2], strict=True):
            high ^= mix64(low ^ even) % (1 << high_bits)
            low ^= mix64(high ^ odd) % (1 << low_bits)
        x = high << low_bits | low
        if x < n:
            return x


def position_of(n: int, key: int, index: int) -> int:
    """The position that `permute` maps to `index`, by its rounds in reverse."""
    bits = max(2, (n - 1).bit_length())
    high_bits = bits // 2
    low_bits = bits - high_bits
    keys = [hash64(key, r) for r in range(32 if bits < 16 else 12)]
    x = index
    while True:
        high, low = x >> low_bits, x % (1 << low_bits)
        for even, odd in reversed(list(zip(keys[::2], keys[1::2], strict=True))):
            low ^= mix64(high ^ odd) % (1 << low_bits)
            high ^= mix64(low ^ even) % (1 << high_bits)
        x = high << low_bits | low
        if x < n:
            return x


class Stream:
    """The draws of one stage for one sample in one pass."""

    def __init__(self, key: int, sample: int, number: int, dataset: int, stage: int) -> None:
        self.key = key
        self.words = [sample & 0xFFFFFFFF, sample >> 32, number]
        self.address = dataset << 16 | stage << 8

    def at(self, draw: int) -> tuple[int, int]:
        """Two words of 64 random bits."""
        block = philox(self.key, np.array([*self.words, self.address | draw], np.uint32))
        a, b, c, d = (int(word) for word in block)
        return a | b << 32, c | d << 32


def uniform(bits: int, low: float, high: float) -> float:
    return low + (bits >> 11) / 2**53 * (high - low)


def below(bits: int, n: int) -> int:
    return bits * n >> 64
