"""A trial: the command run once more with remedies, and the pace and samples of the measured run to compare with."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from headrace.doctor.attach import OUTPUT, CommandResult, Patience, run_command
from headrace.doctor.causes import failed_process
from headrace.doctor.measure import MeasuredTraining, training
from headrace.doctor.probe.remedies import KEYS
from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.doctor.session import SCRATCH, read_session
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import BatchDigest

DIGESTS = 32
"""Batches per rank that are compared."""
STEPS = 60
"""Measured steps per proof, if time allows: 6 s of steps of 100 ms."""
FEWEST_STEPS = 20
"""Minimum number of steps for a recommendation."""
ENDING_S = 3.0
"""Time for the processes of a run to end."""
SLACK = 3.0
"""Multiple of its expected time after which a run counts as hung."""
LEAST_PATIENCE_S = 30.0
GRACE_S = 15.0
"""Extra time for all proofs, if the machine is slower than before."""


@dataclass(frozen=True)
class ComparedSamples:
    """The first batches of a run, by rank, and whether random numbers were drawn during their production."""

    by_rank: dict[int, list[BatchDigest]] = field(default_factory=dict)
    draws: bool = False
    later: frozenset[tuple[int, int]] = frozenset()
    """Rank and pass, of each pass that is not the first over its loader."""

    @classmethod
    def of(cls, session: Session) -> ComparedSamples:
        draws = any(process.facts.get("facts", {}).get("draws") for process in session.processes)
        later = set()
        for trainer in session.trainers:
            begun: set[int] = set()
            for one in trainer.passes:
                if one.loader in begun:
                    later.add((trainer.rank, one.number))
                begun.add(one.loader)
        return cls({trainer.rank: trainer.digests for trainer in session.trainers}, draws, frozenset(later))


def compare(before: ComparedSamples, after: ComparedSamples, is_repeatable: bool | None) -> str | None:
    """Compare samples: `same`, `different` or None. `is_repeatable`: whether two unchanged runs are, if known."""
    pairs = _pairs(before, after)
    if not pairs:
        return None
    if all(one.content == other.content for one, other in pairs):
        return "same"
    has_other_keys = any(one.keys != other.keys for one, other in pairs)
    if has_other_keys or before.draws or after.draws:  # no injected remedy changes the keys
        return None
    return "different" if is_repeatable else None


def compare_adopted(before: ComparedSamples, after: ComparedSamples) -> str | None:
    """Compare a run's samples with the samples of a run with Headrace's Loader, which has its own order and draws.

    `alike` if dtypes and shapes are the same, else `different`; None if there is nothing to compare. The trial of the
    Loader has compared values.
    """
    found = [_adopted(digests, after.by_rank.get(rank, [])) for rank, digests in before.by_rank.items()]
    return next((one for one in ("different", "alike") if one in found), None)


def _adopted(before: Sequence[BatchDigest], after: Sequence[BatchDigest]) -> str | None:
    if not before or not after or not before[0].tensors or not after[0].tensors:
        return None
    return "alike" if before[0].tensors == after[0].tensors else "different"


def are_equal(before: ComparedSamples, after: ComparedSamples) -> bool | None:
    """Return True if all compared samples are the same; None if there is nothing to compare."""
    pairs = _pairs(before, after)
    return all(one.content == other.content for one, other in pairs) if pairs else None


def _pairs(before: ComparedSamples, after: ComparedSamples) -> list[tuple[BatchDigest, BatchDigest]]:
    """Pair the batches that both runs have.

    In passes after the first, pairing stops where the drawn keys differ: draws in between determine their order, and
    persistent workers, for example, draw less.
    """
    pairs = []
    for rank, digests in before.by_rank.items():
        for one, other in zip(digests, after.by_rank.get(rank, []), strict=False):
            if one.keys != other.keys and ((rank, one.pass_) in before.later or (rank, other.pass_) in after.later):
                break
            pairs.append((one, other))
    return pairs


@dataclass(frozen=True)
class BaselinePace:
    """Pace of the measured run, from which the duration of further runs is estimated."""

    start_s: float
    """Time from the start of the command to its first step."""
    warmup: int
    step_us: float
    epoch_steps: int | None
    """Steps per epoch of the loader that the run trains from; None if it has no length."""

    @classmethod
    def of(cls, session: Session) -> BaselinePace | None:
        """Return the pace of the slowest rank, or None if nothing was measured."""
        slowest = _slowest(session)
        if slowest is None:
            return None
        trainer, gets = slowest.trainer, sum(len(step.gets) for step in slowest.steps)
        lengths = [length for loader in trainer.loaders if isinstance(length := loader.facts.get("length"), int)]
        epoch = -(-max(lengths) * len(slowest.steps) // gets) if lengths and gets else None
        return cls(trainer.steps.start[0] / 1e6, slowest.warmup, fmean(slowest.durations), epoch)

    def seconds(self, steps: int, step_us: float | None) -> float:
        """Return the expected duration of a run with `steps` measured steps of `step_us` each."""
        return self.start_s + ENDING_S + self.warmup * self.step_us / 1e6 + steps * self._step_s(step_us)

    def steps_within(self, seconds: float, step_us: float | None) -> int:
        """Return the number of steps that fit, at most `STEPS`: whole epochs if one is shorter, 0 if too few fit.

        Whole epochs matter because the start of the workers belongs to each: one and a half would count it once or
        twice.
        """
        fixed, epoch = self.seconds(0, step_us), self.epoch_steps
        steps = min(STEPS, int((seconds - fixed) / max(self._step_s(step_us), 1e-6)))
        if epoch is not None and FEWEST_STEPS <= epoch <= steps:
            return steps - steps % epoch
        return steps if steps >= FEWEST_STEPS else 0

    def _step_s(self, step_us: float | None) -> float:
        return (self.step_us if step_us is None else min(step_us, self.step_us)) / 1e6


def patience_s(expected_s: float, left_s: float) -> float:
    """Return the time limit of a run in seconds, given the time left for all."""
    return min(max(SLACK * expected_s, LEAST_PATIENCE_S), max(expected_s, left_s) + GRACE_S)


def step_durations(session: Session) -> list[int]:
    """Return the microseconds of the measured steps, of the slowest rank."""
    slowest = _slowest(session)
    return [] if slowest is None else slowest.durations


def _slowest(session: Session) -> MeasuredTraining | None:
    ranks = [training(session, trainer) for trainer in session.trainers]
    stepping = (rank for rank in ranks if rank.unit == "step" and rank.steps)
    return max(stepping, key=lambda rank: fmean(rank.durations), default=None)


DETAIL_LINES = 12
PATIENCE = Patience(grace_s=2.0, terminate_s=2.0, kill_s=3.0)
"""Patience with processes that outlive the command; their fate is not reported."""
Execute = Callable[[list[str], ProbeSettings, dict[str, str], float], CommandResult]
"""Runs a command to its end: command, settings (written), environment variables, and time limit in seconds."""


def variables(changes: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables for a run with these changes."""
    return {"HEADRACE_CACHE_ONLY": "1"} if "loader" in changes else {}


@dataclass(frozen=True)
class TrialRequest:
    """Request of one run: its changes and limits."""

    changes: dict[str, Any]
    steps: int
    most_s: float
    """Time limit in seconds."""


@dataclass(frozen=True)
class Trial:
    """Outcome of one run. If it did not complete its steps, `why` has the reason, as in `Proof.why`."""

    why: str
    detail: str = ""
    duration_us: int = 0
    steps: list[int] = field(default_factory=list)
    samples: ComparedSamples = field(default_factory=ComparedSamples)

    def proof(self, remedies: list[str], changes: dict[str, Any], samples: str | None) -> Proof:
        return Proof(remedies, changes, self.why, self.detail, self.duration_us, self.steps, samples)


def execute(command: list[str], settings: ProbeSettings, environ: dict[str, str], most_s: float) -> CommandResult:
    """Run a command without showing its output or passing input."""
    return run_command(
        command,
        settings,
        output=Path(settings.folder) / OUTPUT,
        patience=PATIENCE,
        variables=environ,
        reads=False,
        most_s=most_s,
    )


def attempt(command: list[str], like: ProbeSettings, order: TrialRequest, run_it: Execute = execute) -> Trial:
    """Run `command` with the settings of the measured run, `like`, changed by `order`. Its evidence is removed."""
    unknown = sorted(set(order.changes) - KEYS)
    if unknown:
        return Trial("not applied", f"this version knows no way to apply {', '.join(unknown)}")
    folder = Path(tempfile.mkdtemp(prefix="headrace-doctor-proof-"))
    try:
        return _run(command, like, folder, order, run_it)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], like: ProbeSettings, folder: Path, order: TrialRequest, run_it: Execute) -> Trial:
    begun = time.monotonic()
    settings = replace(
        like,
        folder=str(folder),
        origin_us=time.monotonic_ns() // 1000,
        origin_wall_us=time.time_ns() // 1000,
        boot_id=boot_id(),
        observe=False,
        scratch=str(folder / SCRATCH) if like.scratch else "",
        steps=order.steps,
        enough=0,
        replay=0,
        proves=True,
        changes=order.changes,
        digests=DIGESTS,
    )
    settings.write()
    ended = run_it(command, settings, variables(order.changes), order.most_s)
    session = read_session(folder, outcome=ended, mode="measure")
    why, detail = _verdict(session, ended, order.changes)
    steps = step_durations(session) if why == "measured" else []
    duration_us = round((time.monotonic() - begun) * 1e6)
    return Trial(why, detail, duration_us, steps, ComparedSamples.of(session))


def _verdict(session: Session, ended: CommandResult, changes: dict[str, Any]) -> tuple[str, str]:
    """Return the reason for the end of the run, and its details."""
    if ended.why in ("interrupted", "timed out"):
        return ended.why, f"after {ended.duration / 1e6:.0f} s" if ended.why == "timed out" else ""
    if session.outcome.status:
        failed = failed_process(session)
        lines = session.outcome.last_lines if failed is None else (failed.error or "").splitlines()
        if lines and lines[-1].startswith("FileExistsError"):  # what the measured run wrote stays
            return "not applied", f"the command does not run twice in one folder: {lines[-1]}"
        return "broke", "\n".join(lines[-DETAIL_LINES:])
    refused = [f"{key}: {why}" for key in changes if (why := _why_not_applied(session, key))]
    if refused:
        return "not applied", "; ".join(refused)
    if not step_durations(session):
        return "broke", "it ended before any step was measured"
    applied = [one for process in session.processes for one in process.facts.get("applied", {}).values()]
    return "measured", "; ".join(dict.fromkeys(text for one in applied for text in one["texts"]))


def _why_not_applied(session: Session, key: str) -> str:
    """Return why a change did not count; empty if it did. It must stay on in all processes to the end."""
    for note in session.notes:
        if note.code == "hook-off" and note.text.startswith(f"remedy {key}"):
            return note.text
    found = [process.facts.get("applied", {}).get(key, {"count": 0, "texts": []}) for process in session.processes]
    if any(one["count"] for one in found):
        return ""
    return next((text for one in found for text in one["texts"]), "nothing in the run took it")
