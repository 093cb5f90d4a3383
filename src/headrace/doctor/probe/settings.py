"""What one diagnosis asks of its probes: written once by the doctor, read by every process."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

FILE = "settings.json"
EVIDENCE = "evidence"


@dataclass(frozen=True)
class Settings:
    folder: str
    """The session's folder."""
    origin_us: int
    """Zero of every time in the evidence, on the doctor's CLOCK_MONOTONIC."""
    origin_wall_us: int
    """The same moment by the wall clock, for hosts that booted at another time."""
    boot_id: str
    """Which boot of which machine `origin_us` belongs to; empty where the kernel does not tell."""
    observe: bool = False
    """Passive for the whole run. Otherwise the run ends once `steps` were measured."""
    warmup: int | None = None
    """Steps before the measured ones; None for as many as empty the prefetch queue."""
    steps: int = 200
    """Steps to measure."""
    ranges: bool = False
    """Whether steps and stages show as record_function and NVTX ranges."""
    replay: int = 0
    """Steps of the replay window, and of that under load, after the measured ones; 0: neither, and no drain."""
    drain_s: float = 0.0
    """Seconds that draining may take."""
    scratch: str = ""
    """The folder that takes what the run would write of checkpoints and trackers' files; empty: it writes as ever."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Remedies to inject, of docs/doctor/remedies.md."""
    digests: int = 0
    """Batches, the first of each process that trains, that are digested, so that runs can be compared."""
    most_bytes: int = 16 << 20
    """Size that no evidence file exceeds; from half of it on, records are thinned."""

    @property
    def evidence(self) -> str:
        """The folder of the evidence files."""
        return os.path.join(self.folder, EVIDENCE)

    def write(self) -> None:
        os.makedirs(self.evidence, exist_ok=True)
        with open(os.path.join(self.folder, FILE), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, folder: str) -> Settings:
        """Fields of a newer doctor are ignored: one process may have been started by another version."""
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            values = json.load(file)
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**dict(known, folder=folder))
