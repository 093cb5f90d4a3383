"""What a cache did, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class CacheStats:
    """Counted in this process. `hits` high beside `misses`: samples come from the cache. `damaged` entries failed
    their checksum, count as misses, and were made anew: above 0, look at the disk. `used_bytes` is what the cache holds
    for all processes, index included. `stopped` says why nothing more is kept, such as "full"; None while it is.
    `cuts` says, by field, what is kept.
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

    @property
    def hit_rate(self) -> float | None:
        """Of all look-ups. None before the first."""
        looked_up = self.hits + self.misses
        return self.hits / looked_up if looked_up else None

    def since(self, before: CacheStats) -> CacheStats:
        """What was counted after `before`."""
        return replace(
            self,
            hits=self.hits - before.hits,
            misses=self.misses - before.misses,
            admitted=self.admitted - before.admitted,
            damaged=self.damaged - before.damaged,
        )

    def __str__(self) -> str:
        rate = "nothing looked up yet" if self.hit_rate is None else f"{self.hit_rate:.1%} hits"
        held = f"{size_text(self.used_bytes)} of {size_text(self.limit_bytes)} used"
        stopped = "" if self.stopped is None else f", {self.stopped}"
        damaged = f", {self.damaged:,} damaged entries made anew" if self.damaged else ""
        cuts = "; ".join(f"{name}: {cut}" for name, cut in self.cuts.items())
        return f"cache ({self.where}): {rate}, {held}{stopped}{damaged}" + (f"\n    kept: {cuts}" if cuts else "")


def size_text(size_bytes: float) -> str:
    """As "1.5 GB"."""
    unit = 0
    while size_bytes >= 1000 and unit < len(_UNITS) - 1:
        size_bytes, unit = size_bytes / 1000, unit + 1
    return f"{size_bytes:,.{0 if unit == 0 else 1}f} {_UNITS[unit]}"
