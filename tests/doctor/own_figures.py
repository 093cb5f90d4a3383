"""What a case measured of itself (cases/known_truth.py), beside what the doctor says of the same run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.doctor.measure.diagnosis import Diagnosis

Shares = dict[str, float]


@dataclass(frozen=True)
class OwnFigures:
    """Sums over a run, in microseconds."""

    wall: dict[str, float]
    """Of each stage, all makers together."""
    cpu: dict[str, float]
    steps: list[dict[str, float]]
    """The parts of each step, in order."""

    @classmethod
    def read(cls, folder: Path) -> OwnFigures:
        wall: dict[str, float] = defaultdict(float)
        cpu: dict[str, float] = defaultdict(float)
        steps = []
        for path in folder.glob("*.jsonl"):
            for kind, name, *values in map(json.loads, path.read_text().splitlines()):
                if kind == "stage":
                    wall[name] += values[0]
                    cpu[name] += values[1]
                else:
                    steps.append(values[0])
        return cls(dict(wall), dict(cpu), steps)

    def of_steps(self, numbers: Sequence[int]) -> Shares:
        """Means of their parts: of those that the doctor measured, say, which rests in some."""
        return {name: value / len(numbers) for name, value in _sum([self.steps[at] for at in numbers]).items()}


def shares(parts: Mapping[str, float]) -> Shares:
    whole = sum(parts.values())
    return {name: value / whole for name, value in parts.items()}


def stage_shares(diagnosis: Diagnosis) -> Shares:
    """By category, of the makers' busy time, as the doctor says."""
    sums: dict[str, float] = defaultdict(float)
    for part in diagnosis.batch_production[0].stages:
        sums[part.category] += part.share
    return dict(sums)


def step_shares(diagnosis: Diagnosis) -> Shares:
    return {part.name: part.share for part in diagnosis.budgets[0].parts}


def rows(case: str, own: Shares, said: Shares) -> list[str]:
    """Lines of a table: what each says of every stage that either knows."""
    names = sorted({*own, *said}, key=lambda name: -own.get(name, 0.0))
    return [f"| {case} | {name} | {_percent(own, name)} | {_percent(said, name)} |" for name in names]


def _percent(of: Shares, name: str) -> str:
    return f"{of[name] * 100:.1f}" if name in of else "–"


def _sum(steps: list[dict[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for parts in steps:
        for name, value in parts.items():
            sums[name] += value
    return dict(sums)
