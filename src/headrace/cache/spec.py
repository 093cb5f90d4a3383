"""Where a cache lies and how large it may grow, as users write it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from headrace.errors import UsageError

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


@dataclass(frozen=True)
class CacheSpec:
    """`folder` is None in RAM. The limit counts all of one cache, its index included."""

    kind: Literal["ram", "disk"]
    folder: str | None
    limit_bytes: int

    def __str__(self) -> str:
        return "ram" if self.folder is None else f"disk:{self.folder}"


def parse_spec(text: str, *, argument: str = "cache") -> CacheSpec:
    """Reads "ram:SIZE" or "disk:FOLDER:SIZE". Raises UsageError for anything else."""
    wanted = f'{argument}: expected "ram:SIZE" or "disk:FOLDER:SIZE", such as "ram:8GB" or "disk:/nvme/cache:200GB"'
    kind, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind not in ("ram", "disk") or not colon:
        raise UsageError(f"{wanted}, got {text!r}")
    if kind == "ram":
        return CacheSpec("ram", None, parse_size(rest, text, argument))
    folder, colon, size = rest.rpartition(":")  # a folder's name may hold colons
    if not colon or not folder:
        raise UsageError(f"{wanted}, got {text!r}")
    return CacheSpec("disk", os.path.abspath(os.path.expanduser(folder)), parse_size(size, text, argument))


def parse_size(size: str, text: str, argument: str) -> int:
    """Bytes of a `size` such as "8GB", which stands in `text`. Raises UsageError."""
    match = _SIZE.fullmatch(size.strip())
    unit = None if match is None else _UNITS.get(match[2].upper())
    limit = 0 if match is None or unit is None else int(float(match[1]) * unit)
    if limit <= 0:
        raise UsageError(f"{argument}: expected a size above 0 in {text!r}, such as 8GB or 512MiB, got {size!r}")
    return limit
