"""Candidates of `headrace tune`: the arguments of one DataLoader, by prediction, corrected by each run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import Any

from headrace.doctor.causes import COPY_LEFT, Case, bytes_a_worker, pinned
from headrace.doctor.edits import argument
from headrace.doctor.measure import PREFETCH, interval, is_gain, is_valid, whole_fact
from headrace.doctor.prove.prover import Attempt, Prover
from headrace.doctor.quantities import counted
from headrace.doctor.session.after_run import Proof
from headrace.doctor.simulate import FeedSetup, Prediction

WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PREFETCH_FACTORS = (2, 4, 8)
EVEN = 0.02
"""Share of a step within which two settings count as equally fast: two runs of one script differ by as much."""


@dataclass(frozen=True, kw_only=True, order=True)
class Arguments:
    """Tuned arguments of a DataLoader. Of two settings, the smaller uses less of the machine."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool = False
    persistent_workers: bool = False

    @property
    def in_flight(self) -> int:
        return self.num_workers * (self.prefetch_factor or 0)

    def changes(self) -> dict[str, Any]:
        """Return the changes of one loader, as docs/doctor/remedies.md describes them."""
        return asdict(self) if self.num_workers else {"num_workers": 0, "pin_memory": self.pin_memory}

    def __str__(self) -> str:
        parts = [counted(self.num_workers, "worker")]
        parts += [f"prefetch {self.prefetch_factor}"] if self.num_workers else []
        parts += ["persistent"] if self.persistent_workers else []
        parts += ["pinned"] if self.pin_memory else []
        return ", ".join(parts)


def arguments(
    num_workers: int, prefetch_factor: int | None = PREFETCH, pin_memory: bool = False, persistent_workers: bool = False
) -> Arguments:
    """Return valid DataLoader arguments: arguments that need workers are dropped without workers."""
    return Arguments(
        num_workers=num_workers,
        prefetch_factor=prefetch_factor or PREFETCH if num_workers else None,
        pin_memory=pin_memory,
        persistent_workers=persistent_workers and num_workers > 0,
    )


@dataclass(frozen=True)
class TunedLoader:
    """The DataLoader of a measured run, and the arguments that fit its machine."""

    case: Case

    @cached_property
    def present(self) -> Arguments:
        """Arguments of the loader in the script."""
        workers, queue = (whole_fact(self.case.facts, name) for name in ("num_workers", "prefetch_factor"))
        pins, persist = (self.case.facts.get(name) is True for name in ("pin_memory", "persistent_workers"))
        return arguments(workers or 0, queue, pins, persist)

    @cached_property
    def needs_workers(self) -> str:
        """Argument that has a meaning only in workers; empty without one, or without workers."""
        call = self.case.script.call
        if not self.present.num_workers or self.case.facts.get("timeout"):  # which DataLoader rejects without workers
            return "timeout" if self.present.num_workers else ""
        return "worker_init_fn" if call is not None and argument(call.call, "worker_init_fn") is not None else ""

    @cached_property
    def counts(self) -> list[int]:
        """Numbers of workers to consider, including the present one.

        Workers that wait for storage need no core, so there are up to twice the cores, or as many as keep them busy.
        """
        now, cores, recorded = self.present.num_workers, self.case.cores, self.case.recorded
        if self.case.facts.get("iterable") is True:  # another number would give other samples
            return [now]
        most = 2 * max(now, (1 if cores is None else int(cores)) + 1)
        enough = None if recorded is None else recorded.most_workers()
        if enough is not None:
            most = max(min(most, enough), 1)
        return sorted({*(one for one in WORKERS if one <= most and (one or not self.needs_workers)), now})

    @cached_property
    def most_more(self) -> tuple[float, float]:
        """Additional workers that fit into host memory, and additional batches that fit into shared memory.

        The ranks of a host share both. Without workers, a worker is assumed to need as much memory as the trainer.
        """
        case, host = self.case, self.case.host
        if host is None:
            return math.inf, math.inf
        ranks, each = max(1, len(host.trainers)), bytes_a_worker(case)
        each = each or host.figures(case.view.trainer.pid).get("private_bytes_peak")
        rooms = (case.free_bytes, each), (case.free_shared_bytes, case.batch_bytes)
        workers, batches = (math.inf if free is None or not size else free / ranks / size for free, size in rooms)
        return workers, batches

    @cached_property
    def grid(self) -> list[Arguments]:
        """All settings to consider, including the present one, from the least use of the machine."""
        case, now, (workers, batches) = self.case, self.present, self.most_more
        pinning = {False, True} if case.has_gpu else {now.pin_memory}
        can_persist = case.making.passes > 1 and len(case.loaders) == 1
        persisting = {False, True} if can_persist else {now.persistent_workers}
        every = [arguments(*one) for one in product(self.counts, PREFETCH_FACTORS, pinning, persisting)]
        few = [one for one in every if one.num_workers - now.num_workers <= max(workers, 0)]
        return sorted({*(one for one in few if one.in_flight - now.in_flight <= max(batches, 0)), now})

    @cached_property
    def predictions(self) -> dict[Arguments, Prediction]:
        return {one: made for one in self.grid if (made := self.predict(one)) is not None}

    def predict(self, wanted: Arguments) -> Prediction | None:
        newly_pinned = wanted.pin_memory and not self.present.pin_memory

        def change(setup: FeedSetup) -> FeedSetup:
            queue, pins = wanted.prefetch_factor or setup.prefetch, setup.pinned and wanted.pin_memory
            workers, persist = wanted.num_workers, wanted.persistent_workers
            changed = replace(setup, workers=workers, prefetch=queue, persistent=persist, pinned=pins)
            return pinned(self.case, COPY_LEFT.usual)(changed) if newly_pinned else changed

        return self.case.predict(change)

    @property
    def lower_bound_us(self) -> float:
        """Lower bound of the step: without data stalls, less the uncertainty of the measured step; 0 if unknown."""
        recorded = self.case.recorded
        mean, low, _ = interval(self.case.view.training.durations)
        return 0.0 if recorded is None else recorded.unhindered_us() * low / mean

    def left_out(self) -> Iterator[str]:
        """Yield what the grid leaves out, and why."""
        if self.case.facts.get("iterable") is True:
            yield "num_workers: unchanged, since the samples of an iterable dataset depend on how many workers share it"
        elif self.needs_workers:
            yield f"num_workers=0: not tried, since {self.needs_workers} has a meaning in workers only"
        if max(self.counts) - self.present.num_workers > max(self.most_more[0], 0):
            yield "more workers: host memory has no room for them"
        if not self.case.has_gpu:
            yield "pin_memory: no CUDA device was used in this run, so nothing is copied from pinned memory"
        if len(self.case.loaders) > 1:
            yield "persistent_workers: the script makes a DataLoader for each pass; make it once to keep its workers"
        elif self.case.making.passes < 2:
            saves = "in a script that makes several passes it saves the start of the workers in each"
            yield f"persistent_workers: unchanged, since one pass over the data was seen; {saves}"


Runs = Mapping[Arguments, Proof]


@dataclass
class SettingSearch:
    """Search for the fastest setting in few runs."""

    loader: TunedLoader
    most_runs: int
    """Maximum number of runs, including the first of the unchanged command."""
    runs: dict[Arguments, Proof] = field(default_factory=dict)
    """Runs so far by arguments, in order, retained on an interruption."""

    def __post_init__(self) -> None:
        present, measured = self.loader.present, self.loader.case.view.training.durations
        self.runs[present] = Proof([str(present)], {}, "measured", steps=list(measured))

    @property
    def next(self) -> Arguments | None:
        """The setting that is worth the next run; None if there is none."""
        return next_run(self.loader.predictions, self.runs, lower_bound_us=self.loader.lower_bound_us)

    def attempts(self, prover: Prover) -> Iterator[Attempt]:
        """Yield attempts while one is worth running and time is left."""
        while len(self.runs) < self.most_runs and self.ended != "time" and (wanted := self.next) is not None:
            changes = {"loaders": {str(number): wanted.changes() for number in self.loader.case.loaders}}
            yield Attempt([str(wanted)], changes, self.loader.predictions[wanted].step_us, queued=wanted.in_flight)
            self.runs[wanted] = prover.proofs[-1]

    @property
    def ended(self) -> str:
        """Reason for no further run: `time`, `nothing to gain`, `runs` or `interrupted`."""
        if any(proof.why == "not tried" for proof in self.runs.values()):
            return "time"
        if self.next is None:
            return "nothing to gain"
        return "runs" if len(self.runs) >= self.most_runs else "interrupted"


def corrected(predictions: Mapping[Arguments, Prediction], runs: Runs) -> dict[Arguments, Prediction]:
    """Scale predictions by the measurements.

    A simulation error for one setting is similar for its neighbours. So all settings with workers are scaled by the
    mean ratio of measured to predicted steps with workers, and likewise without.
    """
    missed: dict[bool, list[float]] = {False: [], True: []}
    for one, proof in runs.items():
        if is_valid(proof) and one in predictions:
            missed[one.num_workers > 0].append(math.log(fmean(proof.steps) / predictions[one].step_us))
    factors = {has: math.exp(fmean(logs)) if logs else 1.0 for has, logs in missed.items()}
    return {one: prediction.scaled(factors[one.num_workers > 0]) for one, prediction in predictions.items()}


def next_run(
    predictions: Mapping[Arguments, Prediction], runs: Runs, *, lower_bound_us: float = 0.0
) -> Arguments | None:
    """Return the setting to run next: among the fastest predicted, the one that uses least.

    None if the interval of no prediction, or `lower_bound_us`, a step without data stalls, is more than `EVEN` below
    the fastest run. After a failure with more workers than present, no more are tried.
    """
    worth_us = (1 - EVEN) * min((fmean(one.steps) for one in runs.values() if is_valid(one)), default=0.0)
    failed = (one.num_workers for one, proof in runs.items() if proof.why in ("broke", "timed out"))
    least = min((count for count in failed if count > next(iter(runs)).num_workers), default=math.inf)
    open_ = {
        one: prediction.step_us
        for one, prediction in corrected(predictions, runs).items()
        if one not in runs and one.num_workers < least and max(prediction.low_us, lower_bound_us) < worth_us
    }
    fastest = min(open_.values(), default=0.0)
    return min((one for one, us in open_.items() if us <= (1 + EVEN) * fastest), default=None)


def chosen(runs: Runs) -> Arguments:
    """Return the setting that uses least among those within `EVEN` of the fastest.

    The present setting stays unless another is faster by more than `EVEN` and by its whole interval.
    """
    known = {one: fmean(proof.steps) for one, proof in runs.items() if is_valid(proof)}
    present, fastest = next(iter(runs)), min(known, key=lambda one: known[one])
    best = min(one for one, us in known.items() if us <= (1 + EVEN) * known[fastest])
    return next((one for one in (best, fastest) if is_gain(runs[one].steps, known[present])), present)
