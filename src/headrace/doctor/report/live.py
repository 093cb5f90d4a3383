"""Which window a measured run is in, from evidence records as they come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.doctor.probe.ending import SETTLING_STEPS
from headrace.doctor.probe.settings import Settings
from headrace.doctor.report.tail import Record, TailedProcess, take_in

WARM_UP, OBSERVE, REPLAY, LOAD, DRAIN, OVER = "warm-up", "observe", "replay", "load", "drain", "over"


@dataclass(frozen=True)
class CurrentWindow:
    """One of docs/doctor/steps.md, or `warm-up` before them, or `over` after them."""

    name: str
    done: int | None = None
    """Steps, those left out that belong to the change from the window before. None where it has none."""
    steps: int | None = None
    """How many it is to have; None where that is not known yet, or where it has none."""


class WindowMeter:
    """Follows a process that trains through its windows: of several ranks, which go through them together, the one
    that was heard of last."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trainers: dict[str, _Trainer] = {}
        self._newest: _Trainer | None = None

    def add(self, records: Iterable[tuple[TailedProcess, Record]]) -> None:
        take_in(records, self._take)

    def current(self) -> CurrentWindow | None:
        """None before the first step, and in a run without windows."""
        if self._settings.replay == 0 or self._newest is None:
            return None
        return self._newest.current(self._settings)

    def _take(self, process: TailedProcess, record: Record) -> None:
        trainer = self._trainers.setdefault(process.path.name, _Trainer(self._settings.warmup))
        trainer.take(record)
        if record[0] in ("step", "window"):
            self._newest = trainer


class _Trainer:
    def __init__(self, warmup: int | None) -> None:
        self._warmup = warmup
        self._steps = 0
        """That have ended."""
        self._name = OBSERVE
        self._first = 0
        """Number of the window's first step."""
        self._works_ahead = False
        """Whether anybody makes its batches before it asks for them."""

    def take(self, record: Record) -> None:
        kind = record[0]
        if kind == "step":
            self._steps = max(self._steps, record[1] + 1)
        elif kind == "facts":
            self._warmup = record[2].get("warmup_steps", self._warmup)
        elif kind == "loader":
            facts = record[3]
            self._works_ahead |= bool(facts.get("num_workers") or facts.get("threads"))
        elif kind == "window":
            _, name, first, steps, *_ = record
            self._first, self._name = first + steps, self._after(name)
        elif kind == "end" or (kind == "note" and record[2] == "no-replay"):
            self._name = OVER

    def current(self, settings: Settings) -> CurrentWindow:
        if self._name == OBSERVE:
            return self._observing(settings.steps)
        if self._name in (REPLAY, LOAD):
            done = self._steps - self._first - SETTLING_STEPS
            return CurrentWindow(self._name, min(max(done, 0), settings.replay), settings.replay)
        return CurrentWindow(self._name)

    def _after(self, name: str) -> str:
        return {OBSERVE: REPLAY, REPLAY: LOAD if self._works_ahead else DRAIN, LOAD: DRAIN, DRAIN: OVER}[name]

    def _observing(self, steps: int) -> CurrentWindow:
        if self._warmup is None or self._steps < self._warmup:
            return CurrentWindow(WARM_UP, self._steps, self._warmup)
        return CurrentWindow(OBSERVE, min(self._steps - self._warmup, steps), steps)
