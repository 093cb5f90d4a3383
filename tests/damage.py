"""Damage to files, drawn from a seed: what disks, networks, cut-off downloads and hostile hands do to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from png_writer import SIGNATURE, chunk

BLOCK = 512
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
"""Values at which sizes and counts go wrong."""

Generator = np.random.Generator


def damaged(file: bytes, others: Sequence[bytes], rng: Generator) -> bytes:
    """The file after a change, seldom after several; `others` are what pieces may come from."""
    for _ in range(rng.geometric(0.7)):
        change = CHANGES[rng.integers(len(CHANGES))]
        file = change(file, others[rng.integers(len(others))], rng)
    return file


def _place(file: bytes, rng: Generator) -> int:
    """Anywhere; half of the time in the first 700 bytes, where headers are."""
    last = len(file) if rng.random() < 0.5 else min(len(file), 700)
    return int(rng.integers(0, last + 1))


def _piece(file: bytes, rng: Generator) -> tuple[int, int]:
    """Where it begins and ends; small ones are as frequent as large ones."""
    start = _place(file, rng)
    return start, min(len(file), start + int(2 ** rng.uniform(0, 13)))


def _flip_bits(file: bytes, _: bytes, rng: Generator) -> bytes:
    changed = bytearray(file)
    for _ in range(rng.integers(1, 9) if changed else 0):
        changed[min(_place(file, rng), len(file) - 1)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _set_number(file: bytes, _: bytes, rng: Generator) -> bytes:
    """One byte to four, in either order."""
    at, size = _place(file, rng), int(rng.choice([1, 2, 4]))
    value = int(rng.choice(EXTREMES)) % (1 << 8 * size)
    return file[:at] + value.to_bytes(size, ["big", "little"][rng.integers(2)]) + file[at + size :]


def _overwrite(file: bytes, _: bytes, rng: Generator) -> bytes:
    start, end = _piece(file, rng)
    junk = [bytes(end - start), b"\xff" * (end - start), rng.bytes(end - start)][rng.integers(3)]
    return file[:start] + junk + file[end:]


def _delete(file: bytes, _: bytes, rng: Generator) -> bytes:
    start, end = _piece(file, rng)
    return file[:start] + file[end:]


def _repeat(file: bytes, _: bytes, rng: Generator) -> bytes:
    start, end = _piece(file, rng)
    return file[:end] + file[start:end] * int(rng.integers(1, 4)) + file[end:]


def _insert_from(file: bytes, other: bytes, rng: Generator) -> bytes:
    start, end = _piece(other, rng)
    at = _place(file, rng)
    return file[:at] + other[start:end] + file[at:]


def _go_on_with(file: bytes, other: bytes, rng: Generator) -> bytes:
    return file[: _place(file, rng)] + other[_place(other, rng) :]


def _cut_off(file: bytes, _: bytes, rng: Generator) -> bytes:
    return file[: int(rng.integers(0, len(file) + 1))]


CHANGES: tuple[Callable[[bytes, bytes, Generator], bytes], ...] = (
    _flip_bits,
    _set_number,
    _overwrite,
    _delete,
    _repeat,
    _insert_from,
    _go_on_with,
    _cut_off,
)


def sign_png(file: bytes) -> bytes:
    """Each whole chunk with the CRC of what it holds, so that damage gets past the CRCs."""
    out, at = bytearray(file[: len(SIGNATURE)]), len(SIGNATURE)
    while at + 12 <= len(file):
        end = at + 12 + int.from_bytes(file[at : at + 4], "big")
        if end > len(file):
            break
        out += chunk(file[at + 4 : at + 8], file[at + 8 : end - 4])
        at = end
    return bytes(out + file[at:])


def sign_tar(file: bytes) -> bytes:
    """Each header with its checksum, from one to the next by the sizes that they say, so that damage gets past it."""
    out, at = bytearray(file), 0
    while at + BLOCK <= len(out):
        header = out[at : at + BLOCK]
        if any(header):
            header[148:156] = b" " * 8
            out[at + 148 : at + 156] = b"%06o\0 " % sum(header)
        digits = bytes(header[124:136]).strip(b"\0 ")
        size = int(digits, 8) if digits and all(digit in b"01234567" for digit in digits) else 0
        at += BLOCK + -(-size // BLOCK) * BLOCK
    return bytes(out)
