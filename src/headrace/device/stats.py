"""What the way to the device costs, and how much of it nobody notices."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class CopyStats:
    """Counted by a lane. Times on a CUDA device are the device's own, of batches whose events have completed.

    `stage_s` high: the source's tensors are not pinned, and a thread of the host copies them first. `copy_s` and
    `convert_s` are time of the copy and of the conversion. `exposed_s` is the part of both that the training stream
    waited for: high, the batch came too late. None: nothing to measure there.
    """

    bytes: int
    stage_s: float
    copy_s: float
    convert_s: float
    exposed_s: float | None

    @property
    def overlap(self) -> float | None:
        """Share of copy and conversion that ran beside training. Low: raise depth=, or make the source faster."""
        whole = self.copy_s + self.convert_s
        return None if self.exposed_s is None or whole <= 0 else max(0.0, 1 - self.exposed_s / whole)


@dataclass(frozen=True)
class PrefetchStats:
    """Counted since the pass began.

    `consumer_wait_s` high: training waits for data. `ahead_wait_s` high: batches wait for training, all is well.
    `source_s` is time in the source's `next`: near the wall time, the source is the bottleneck. `ready` batches lie on
    the device now.
    """

    batches: int
    ready: int
    wall_s: float
    consumer_wait_s: float
    ahead_wait_s: float
    source_s: float
    copies: CopyStats

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values."""
        return asdict(self) | {"overlap": self.copies.overlap}

    def __str__(self) -> str:
        if self.batches == 0 or self.wall_s <= 0:
            return "Nothing has been taken yet."
        share = self.consumer_wait_s / self.wall_s
        lines = [f"The consumer waited {share:.1%} of the time for {self.batches:,} batches."]
        each = 1e3 / self.batches
        parts = {
            "source": self.source_s,
            "staging": self.copies.stage_s,
            "copy": self.copies.copy_s,
            "convert": self.copies.convert_s,
        }
        lines += [f"  {name:<9}{seconds * each:>9,.2f} ms a batch" for name, seconds in parts.items() if seconds > 0]
        if self.copies.overlap is not None:
            lines.append(f"  {self.copies.overlap:.1%} of copy and conversion ran beside training")
        return "\n".join(lines)
