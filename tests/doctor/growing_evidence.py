"""Evidence of a run that goes on, record by record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.doctor.probe.settings import ProbeSettings

SECOND = 1_000_000
MEASURED: dict[str, Any] = {"steps": 20, "replay": 40}
TWO_WORKERS, NO_WORKERS = ["loader", 0, 0, {"num_workers": 2}], ["loader", 0, 0, {"num_workers": 0}]
CHOSEN = ["facts", 0, {"warmup_steps": 7}]
OBSERVED, REPLAYED = ["window", "observe", 7, 20, 0, 0, 9], ["window", "replay", 27, 43, 3, 9, 99]
LOADED, DRAINED = ["window", "load", 70, 43, 3, 99, 199], ["window", "drain", 113, 0, 0, 199, 299]


def settings(folder: Path, **asked: Any) -> ProbeSettings:
    return ProbeSettings(str(folder), origin_us=0, origin_wall_us=0, boot_id="", **asked)


def evidence(folder: Path) -> Path:
    path = Path(settings(folder).evidence)
    path.mkdir(exist_ok=True)
    return path


def append(path: Path, *records: Any, end: str = "\n") -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, records)) + end)


def step(number: int, start: int, end: int) -> list[Any]:
    return ["step", number, start, end, [], 3]


def get(start: int, duration: int) -> list[Any]:
    return ["get", 0, 0, start, duration, None, None, None, None, None, None]


def batch(start: int, end: int, stages: list[list[int]]) -> list[Any]:
    return ["batch", 0, 0, start, end, end, 10, 4, stages]


def steps(many: int) -> list[Any]:
    return [step(number, number, number + 1) for number in range(many)]
