"""Description of a cache: its place, its content, its statistics."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.errors import UsageError

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


@dataclass(frozen=True)
class CacheSpec:
    """Place and size limit of a cache. `folder` is None in RAM. The limit includes the index."""

    kind: Literal["ram", "disk"]
    folder: str | None
    limit_bytes: int

    def __str__(self) -> str:
        return "ram" if self.folder is None else f"disk:{self.folder}"


def parse_spec(text: str, *, argument: str = "cache") -> CacheSpec:
    """Parse "ram:SIZE" or "disk:FOLDER:SIZE". Raises UsageError for anything else."""
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
    """Return the bytes of a `size` such as "8GB", a part of `text`. Raises UsageError."""
    match = _SIZE.fullmatch(size.strip())
    unit = None if match is None else _UNITS.get(match[2].upper())
    limit = 0 if match is None or unit is None else int(float(match[1]) * unit)
    if limit <= 0:
        raise UsageError(f"{argument}: expected a size above 0 in {text!r}, such as 8GB or 512MiB, got {size!r}")
    return limit


_UNIT_NAMES = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class CacheStats:
    """Statistics of a cache, counted in this process.

    `hits` high relative to `misses`: samples come from the cache. `damaged` entries failed their checksum, count as
    misses, and were written anew: above 0, check the disk. `used_bytes` is the cache's size for all processes, index
    included. `stopped` is the reason why no more entries are stored, such as "full"; None while they are. `cuts`
    describes the cached content by field. `evicted` samples were dropped for others that are read earlier; 0 if a node
    reads all of each epoch.
    """

    where: str
    hits: int
    misses: int
    admitted: int
    damaged: int
    used_bytes: int
    limit_bytes: int
    stopped: str | None
    cuts: Mapping[str, str] = field(default_factory=dict)
    evicted: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Share of look-ups that found their entry; None before the first look-up."""
        looked_up = self.hits + self.misses
        return self.hits / looked_up if looked_up else None

    def since(self, before: CacheStats) -> CacheStats:
        """Return the counts after `before`."""
        return replace(
            self,
            hits=self.hits - before.hits,
            misses=self.misses - before.misses,
            admitted=self.admitted - before.admitted,
            damaged=self.damaged - before.damaged,
            evicted=self.evicted - before.evicted,
        )

    def __str__(self) -> str:
        rate = "nothing looked up yet" if self.hit_rate is None else f"{self.hit_rate:.1%} hits"
        held = f"{size_text(self.used_bytes)} of {size_text(self.limit_bytes)} used"
        stopped = "" if self.stopped is None else f", {self.stopped}"
        damaged = f", {self.damaged:,} damaged entries made anew" if self.damaged else ""
        evicted = f", {self.evicted:,} samples evicted" if self.evicted else ""
        cuts = "; ".join(f"{name}: {cut}" for name, cut in self.cuts.items())
        return f"cache ({self.where}): {rate}, {held}{stopped}{evicted}{damaged}" + (
            f"\n    cached: {cuts}" if cuts else ""
        )


def size_text(size_bytes: float) -> str:
    """Format a size as "1.5 GB"."""
    unit = 0
    while size_bytes >= 1000 and unit < len(_UNIT_NAMES) - 1:
        size_bytes, unit = size_bytes / 1000, unit + 1
    return f"{size_bytes:,.{0 if unit == 0 else 1}f} {_UNIT_NAMES[unit]}"


@dataclass(frozen=True)
class CacheIdentity:
    """Identity of a cache. `key` and `stamp` are digests of 32 bytes.

    Another key means another cache. The same key with another stamp means an older state of the cache, which is then
    made anew.
    """

    entries: int
    key: bytes
    stamp: bytes

    @property
    def name(self) -> str:
        return self.key[:16].hex()


def identity_of(entries: int, what: Any, stamp: Any = None) -> CacheIdentity:
    """Return the identity of a cache, the same in every process and on every machine.

    `what` and `stamp` are plain JSON values; `what` must include everything that the bytes of an entry depend on.
    """
    return CacheIdentity(entries, _digest([entries, what]), _digest(stamp))


def _digest(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, allow_nan=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
