"""Progress and rates of a running command, from its evidence as it grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace.doctor.measure.phases import END, WARM_UP
from headrace.doctor.probe import SETTLING_STEPS, ProbeSettings, replayed_steps
from headrace.doctor.session import evidence
from headrace.doctor.session.trainers import DRAIN, LOAD, OBSERVE, REPLAY

MOST_BYTES_AT_ONCE = 4 << 20
"""Maximum bytes of one file per look. The next look reads the rest."""
RATE_US = 10_000_000
"""Time that the rate covers."""


@dataclass(frozen=True)
class CurrentWindow:
    """Window from docs/doctor/internals.md, or `warm-up` before the windows, or `end` after them."""

    name: str
    done: int | None = None
    """Completed steps, without settling steps after a window change; None if the window has no steps."""
    steps: int | None = None
    """Planned steps; None while unknown, or if the window has no steps."""


@dataclass(frozen=True)
class RunProgress:
    """Position of a run, and its rates over the last seconds. None means not seen yet."""

    step: int | None = None
    """Number of the newest step."""
    steps_per_s: float | None = None
    """Mean rate of one rank."""
    window: CurrentWindow | None = None
    """None before the first step and in a run without windows."""


@dataclass
class _RunningProcess:
    """One evidence file: how far it is read, and how far its process has come."""

    path: Path
    warmup: int | None
    offset: int = 0
    steps: int = 0
    """Number of completed steps."""
    window: str = OBSERVE
    first: int = 0
    """Number of the window's first step."""
    step_s: float = 0.0
    """Mean observed step in seconds; 0 before the end of the observed window."""
    works_ahead: bool = False
    """True if batches are made before the trainer requests them."""

    def new_records(self) -> Iterator[Any]:
        """Yield whole records added since the last call; damaged lines are skipped."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(MOST_BYTES_AT_ONCE)
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            try:
                yield evidence.decode_record(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue

    def take(self, record: Any) -> None:
        match record:
            case evidence.StepLine():
                self.steps = max(self.steps, record.number + 1)
            case evidence.FactsLine():
                self.warmup = record.facts.get("warmup_steps", self.warmup)
            case evidence.LoaderLine():
                self.works_ahead |= bool(record.facts.get("num_workers") or record.facts.get("threads"))
            case evidence.WindowLine():
                after = {OBSERVE: REPLAY, REPLAY: LOAD if self.works_ahead else DRAIN, LOAD: DRAIN}
                if record.name == OBSERVE and record.steps:
                    self.step_s = (record.end - record.start) / 1e6 / record.steps
                self.first, self.window = record.first + record.steps, after.get(record.name, END)
            case evidence.EndLine() | evidence.NoteLine(code="no-replay"):
                self.window = END

    def current(self, asked: ProbeSettings) -> CurrentWindow:
        if self.window in (REPLAY, LOAD):
            done = self.steps - self.first - SETTLING_STEPS
            most = replayed_steps(asked.replay, asked.steps, self.step_s)
            return CurrentWindow(self.window, min(max(done, 0), most), most)
        if self.window != OBSERVE:
            return CurrentWindow(self.window)
        if self.warmup is None or self.steps < self.warmup:
            return CurrentWindow(WARM_UP, self.steps, self.warmup)
        return CurrentWindow(OBSERVE, min(self.steps - self.warmup, asked.steps), asked.steps)


class RunMeter:
    """Reader of a run's evidence folder, which may not exist yet, and to which processes add files."""

    def __init__(self, settings: ProbeSettings) -> None:
        self._settings = settings
        self._processes: dict[str, _RunningProcess] = {}
        self._trains: _RunningProcess | None = None
        """Process with the newest step. All ranks go through the windows together."""
        self._steps: deque[tuple[int, int]] = deque()  # end, duration
        self._step: int | None = None
        self._now_us = 0

    def look(self) -> RunProgress:
        """Read new evidence, and return the run's progress."""
        for path in sorted(Path(self._settings.evidence).glob("*.jsonl")):
            process = self._processes.setdefault(path.name, _RunningProcess(path, self._settings.warmup))
            for record in process.new_records():
                process.take(record)
                self._take(process, record)
        return self._progress()

    def _take(self, process: _RunningProcess, record: Any) -> None:
        match record:
            case evidence.StepLine():
                self._steps.append((record.end, record.end - record.start))
                self._step, self._trains = max(self._step or 0, record.number), process
                self._now_us = max(self._now_us, record.end)
            case evidence.WindowLine():
                self._trains = process

    def _progress(self) -> RunProgress:
        while self._steps and self._steps[0][0] < self._now_us - RATE_US:
            self._steps.popleft()
        steps_us = sum(duration for _, duration in self._steps)
        has_windows = self._settings.replay > 0 and self._trains is not None
        return RunProgress(
            step=self._step,
            steps_per_s=len(self._steps) * 1e6 / steps_us if steps_us else None,
            window=self._trains.current(self._settings) if has_windows and self._trains is not None else None,
        )
