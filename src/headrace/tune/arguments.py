"""The arguments of a DataLoader that are tuned, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT_PREFETCH = 2
"""DataLoader's own, where there are workers and nothing else is said."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """`prefetch_factor` is None without workers, as DataLoader has it; `persistent_workers` is False then."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool = False
    persistent_workers: bool = False

    @property
    def cost(self) -> tuple[int, int, bool, bool]:
        """What it takes of the machine: of two that are as fast, the smaller one is to be had."""
        return self.num_workers, self.prefetch_factor or 0, self.pin_memory, self.persistent_workers

    @property
    def in_flight(self) -> int:
        """Batches that are made ahead, at most."""
        return self.num_workers * (self.prefetch_factor or 0)

    def changes(self) -> dict[str, Any]:
        """As docs/doctor/remedies.md has them, for one loader."""
        wanted: dict[str, Any] = {"num_workers": self.num_workers, "pin_memory": self.pin_memory}
        if self.num_workers:
            wanted |= {"prefetch_factor": self.prefetch_factor, "persistent_workers": self.persistent_workers}
        return wanted

    def __str__(self) -> str:
        parts = [f"{self.num_workers} worker" + ("" if self.num_workers == 1 else "s")]
        parts += [f"prefetch {self.prefetch_factor}"] if self.num_workers else []
        parts += ["persistent"] if self.persistent_workers else []
        parts += ["pinned"] if self.pin_memory else []
        return ", ".join(parts)


def arguments(
    num_workers: int,
    prefetch_factor: int | None = DEFAULT_PREFETCH,
    *,
    pin_memory: bool = False,
    persistent_workers: bool = False,
) -> Arguments:
    """As a DataLoader takes them: what needs workers goes where there are none."""
    if not num_workers:
        return Arguments(num_workers=0, prefetch_factor=None, pin_memory=pin_memory)
    return Arguments(
        num_workers=num_workers,
        prefetch_factor=DEFAULT_PREFETCH if prefetch_factor is None else prefetch_factor,
        pin_memory=pin_memory,
        persistent_workers=persistent_workers,
    )
