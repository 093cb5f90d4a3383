"""What the kernel tells about itself, as files; and how its texts are read when any field may be missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

KIB = 1024
MOST_DIGITS = 20
MOST_CORES = 1 << 16
"""More than any kernel is built for."""


@dataclass(frozen=True)
class Space:
    """Of a file system."""

    total_bytes: int
    used_bytes: int


class Kernel(Protocol):
    """The one way to the machine, so that a test can be any machine. What is absent or forbidden is None or empty:
    containers hide files, and processes end while they are read."""

    def text(self, path: str) -> str | None: ...

    def names(self, folder: str) -> list[str]: ...

    def link(self, path: str) -> str | None: ...

    def space(self, path: str) -> Space | None: ...


class LinuxKernel:
    """The machine that this runs on."""

    def text(self, path: str) -> str | None:
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read().decode("utf-8", "replace")
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except OSError:
            return None

    def space(self, path: str) -> Space | None:
        try:
            system = os.statvfs(path)
        except OSError:
            return None
        total = system.f_blocks * system.f_frsize
        return Space(total, total - system.f_bfree * system.f_frsize)


def pairs(text: str | None) -> dict[str, int]:
    """`key 12`, `key: 12` or `key:  12 kB`, one a line, kB in bytes. Lines of another form are left out."""
    found = {}
    for words in rows(text):
        if len(words) >= 2 and is_whole(words[1]):
            found[words[0].rstrip(":")] = int(words[1]) * (KIB if words[2:] == ["kB"] else 1)
    return found


def rows(text: str | None) -> list[list[str]]:
    """The words of each line that has any."""
    return [words for line in (text or "").splitlines() if (words := line.split())]


def whole(text: str | None) -> int | None:
    """The number that is all of the text."""
    text = (text or "").strip()
    return int(text) if is_whole(text) else None


def stripped(text: str | None) -> str | None:
    """The text without the space around it; None where nothing is left."""
    return (text or "").strip() or None


def is_whole(text: str) -> bool:
    """Whether it is a number as the kernel writes one, of 64 bits at most."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def span(text: str) -> set[int]:
    """The numbers of a list such as `0-3,8`."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if is_whole(first) and is_whole(last or first) and int(last or first) < MOST_CORES:
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers
