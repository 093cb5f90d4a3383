"""Progress of a running command, from its evidence as it grows, and the expected time to its report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace.doctor.probe import SETTLING_STEPS, ProbeSettings, observed_steps, replayed_steps
from headrace.doctor.quantities import counted, duration
from headrace.doctor.session import evidence
from headrace.doctor.session.trainers import DRAIN, LOAD, OBSERVE, REPLAY

WARM_UP, END = "warm-up", "end"
IN_WORDS = {
    WARM_UP: "warm-up",
    OBSERVE: "observing",
    REPLAY: "replaying",
    LOAD: "replaying with workers running",
    DRAIN: "draining the loader",
    END: "ending the run",
    "read": "reading what was measured",
    "look": "explaining its samples",
    "survey": "looking at the files",
    "diagnose": "diagnosing",
    "trial": "trying Headrace's Loader",
    "prescribe": "simulating remedies",
    "prove": "proving remedies",
}
USUAL_WARMUP = 10
"""Usual warm-up when the probe chooses it: the queue of two workers, and the settling steps."""
USUAL_STEP_S = 0.1
REPORT_S = 6.0
"""Usual seconds of survey, simulations and report together."""
FEWEST_OBSERVED, MOST_SUGGESTED = 3, 40
MADE_UP = (WARM_UP, OBSERVE, REPLAY, LOAD, DRAIN)
"""Phases of a run with lengths that depend on its steps, in order."""


@dataclass(frozen=True)
class DiagnosisPlan:
    """Settings of a run, and what follows it."""

    settings: ProbeSettings
    trial_s: float = 0.0
    """Seconds for Headrace's Loader; 0 if it is not tried."""
    prove_s: float = 0.0
    """Maximum seconds for proofs."""

    def seconds_left(self, phase: str, done: int, step_s: float) -> float:
        """Return the seconds from step `done` of a phase to the report, without proofs."""
        asked = self.settings
        replayed = replayed_steps(asked.replay, asked.steps, step_s)
        replay_s = (SETTLING_STEPS + replayed) * step_s if replayed else 0.0
        warmup = USUAL_WARMUP if asked.warmup is None else asked.warmup
        observed = observed_steps(asked.steps, step_s) if asked.enough else asked.steps
        lengths = [warmup * step_s, observed * step_s, replay_s, replay_s, min(asked.drain_s, replayed * step_s)]
        at = MADE_UP.index(phase) if phase in MADE_UP else len(MADE_UP)
        left_s = sum(lengths[at:]) - (min(done * step_s, lengths[at]) if at < len(MADE_UP) else 0.0)
        return left_s + self.trial_s + REPORT_S

    def text(self) -> str:
        """Return one line for the start of the run."""
        steps, replay = self.settings.steps, self.settings.replay
        parts = [f"{counted(steps, 'step')} as they are"]
        if replay:
            parts += [f"{2 * replayed_steps(replay, steps, USUAL_STEP_S)} on cached batches", "the loader alone"]
        if self.trial_s:
            parts.append("Headrace's Loader on the run's files")
        usual_s = self.seconds_left(WARM_UP, 0, USUAL_STEP_S)
        proofs = f", then proofs for up to {self.prove_s:.0f} s" if self.prove_s else ""
        at = duration(USUAL_STEP_S * 1e6)
        return f"{about(usual_s)} after the script's start if a step takes {at}: {', '.join(parts)}{proofs}"


def about(seconds: float) -> str:
    """Return an estimated time with few digits: `about 40 s`, `about 3 min`."""
    if seconds < 90:
        return f"about {max(round(seconds / 5) * 5, 5)} s"
    return f"about {round(seconds / 60)} min"


def options_for(steps: int) -> str:
    """Return the option that leaves room for cached batches in a run of `steps` steps; empty if none does."""
    for windows in (2, 1):  # the second one with the workers running
        for observed in range(MOST_SUGGESTED, FEWEST_OBSERVED - 1, -1):
            replayed = SETTLING_STEPS + replayed_steps(MOST_SUGGESTED, observed, 0.0)
            if USUAL_WARMUP + observed + windows * replayed <= steps:
                return f"--steps {observed}"
    return ""


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
