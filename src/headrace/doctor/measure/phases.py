"""Duration of a diagnosis: expected in total, left at a moment, and spent in each phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.doctor.probe import SETTLING_STEPS, ProbeSettings, observed_steps, replayed_steps
from headrace.doctor.quantities import counted, duration
from headrace.doctor.session.model import PhaseRow, Session
from headrace.doctor.session.trainers import DRAIN, LOAD, OBSERVE, REPLAY

START, WARM_UP, END = "start", "warm-up", "end"
READ, LOOK, SURVEY, DIAGNOSE = "read", "look", "survey", "diagnose"
TRIAL, PRESCRIBE, PROVE = "trial", "prescribe", "prove"
IN_WORDS = {
    START: "the script's start",
    WARM_UP: "warm-up",
    OBSERVE: "observing",
    REPLAY: "replaying",
    LOAD: "replaying with workers running",
    DRAIN: "draining the loader",
    END: "ending the run",
    READ: "reading what was measured",
    LOOK: "explaining its samples",
    SURVEY: "looking at the files",
    DIAGNOSE: "diagnosing",
    TRIAL: "trying Headrace's Loader",
    PRESCRIBE: "simulating remedies",
    PROVE: "proving remedies",
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
    steps: int
    warmup: int | None
    replay: int
    drain_s: float
    trial_s: float = 0.0
    """Seconds for Headrace's Loader; 0 if it is not tried."""
    prove_s: float = 0.0
    """Maximum seconds for proofs."""
    ends_early: bool = False
    """True if observation of long steps may end before its number of steps."""

    @classmethod
    def of(cls, settings: ProbeSettings, *, trial_s: float, prove_s: float) -> DiagnosisPlan:
        return cls(
            steps=settings.steps,
            warmup=settings.warmup,
            replay=settings.replay,
            drain_s=settings.drain_s,
            trial_s=trial_s,
            prove_s=prove_s,
            ends_early=settings.enough > 0,
        )

    def seconds_left(self, phase: str, done: int, step_s: float) -> float:
        """Return the seconds from step `done` of a phase to the report, without proofs."""
        replayed = replayed_steps(self.replay, self.steps, step_s)
        replay_s = (SETTLING_STEPS + replayed) * step_s if replayed else 0.0
        warmup = USUAL_WARMUP if self.warmup is None else self.warmup
        observed = observed_steps(self.steps, step_s) if self.ends_early else self.steps
        lengths = [warmup * step_s, observed * step_s, replay_s, replay_s, min(self.drain_s, replayed * step_s)]
        at = MADE_UP.index(phase) if phase in MADE_UP else len(MADE_UP)
        left_s = sum(lengths[at:]) - (min(done * step_s, lengths[at]) if at < len(MADE_UP) else 0.0)
        return left_s + self.trial_s + REPORT_S

    def text(self) -> str:
        """Return one line for the start of the run."""
        parts = [f"{counted(self.steps, 'step')} as they are"]
        if self.replay:
            parts += [
                f"{2 * replayed_steps(self.replay, self.steps, USUAL_STEP_S)} on cached batches",
                "the loader alone",
            ]
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


class PhaseClock:
    """Clock of the doctor's own phases, which announces each."""

    def __init__(self, now_us: Callable[[], int], begins: Callable[[str], None]) -> None:
        self._now_us = now_us
        self._begins = begins
        self.rows: list[PhaseRow] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the time in this context. A repeated phase is a separate row."""
        self._begins(name)
        start = self._now_us()
        try:
            yield
        finally:
            self.rows.append((name, start, self._now_us()))


def run_phases(session: Session, ended_us: int) -> list[PhaseRow]:
    """Return the consecutive phases of a run that ended at `ended_us`, by the first rank that trained."""
    trainer = next((one for one in session.trainers if one.steps.start), None)
    if trainer is None:
        return [(START, 0, ended_us)]
    first, last = trainer.steps.start[0], trainer.steps.end[-1]
    windows = {one.name: (one.start, one.end) for one in trainer.windows}
    observed = windows.pop(OBSERVE, (first, last))
    rows = [(START, 0, first), (WARM_UP, first, observed[0]), (OBSERVE, *observed)]
    rows += [(name, *window) for name, window in windows.items()]
    rows.append((END, rows[-1][2], ended_us))
    return [row for row in rows if row[2] > row[1]]


def phases_text(session: Session) -> str:
    """Return the time of each phase, and the total; empty if not recorded."""
    if not session.phases:
        return ""
    took: dict[str, int] = {}
    for name, start, end in session.phases:
        took[name] = took.get(name, 0) + end - start
    whole = session.phases[-1][2] - session.phases[0][1]
    return " · ".join([*(f"{name} {duration(us)}" for name, us in took.items()), f"all {duration(whole)}"])
