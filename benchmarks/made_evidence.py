"""Evidence of a long run on many ranks, made in seconds: the probe's own recorders, driven by a clock of their own.

Each rank and each worker is a process, as in a run, one after the other. A worker's batch has 8 samples and
ten stages; a step has a batch, a copy to the device, backward, optimizer, and the marks of a simulated device.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.doctor.probe import batch_production, settings, stages
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.probe.stack_sampler import stack_of
from headrace.doctor.probe.training import training
from headrace.doctor.probe.training.device_marks import DeviceMarks
from headrace.doctor.probe.training.steps import FetchedBatch
from headrace.doctor.probe.training.training import TrainingObserver

SAMPLES = 8
STEP_NS = 100_000_000
STAGES = [
    ("read", "open"),
    ("lookup", "TarFile.getmember"),
    ("read", "ExFileObject.read"),
    ("decode", "Image.open"),
    ("decode", "ImageFile.load"),
    ("transform", "RandomResizedCrop"),
    ("transform", "RandomHorizontalFlip"),
    ("transform", "ToTensor"),
    ("transform", "Normalize"),
]
"""Within a sample; `getitem`, `collate` and `other` come on top."""
SHAPE = "float32[8,3,224,224] int64[8]"
BATCH_BYTES = SAMPLES * 3 * 224 * 224 * 4 + SAMPLES * 8


class MadeTime:
    """Stands for the module `time` in the recorders: it goes on only when told to."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.cpu_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def thread_time_ns(self) -> int:
        return self.cpu_ns

    def pass_by(self, ns: float, *, computing: float = 0.8) -> None:
        self.now_ns += round(ns)
        self.cpu_ns += round(ns * computing)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class MadeDevice:
    """Comes past every mark at once."""

    def __init__(self, made: MadeTime) -> None:
        self._made = made

    def follow(self) -> None:
        pass

    def record(self, spare: Any) -> int:
        return self._made.now_ns

    def is_done(self, mark: int) -> bool:
        return True

    def elapsed_us(self, earlier: int, later: int) -> float:
        return (later - earlier) / 1000


class OneLookABatch:
    """In the place of the thread that looks where a batch stands, which goes by the true clock."""

    cost_ns = 0

    def __init__(self, probe: Probe) -> None:
        self._look = probe.batches.lines.add

    def begin(self, batch: batch_production.ProducedBatch) -> None:
        pass

    def end(self, batch: batch_production.ProducedBatch, wall_ns: int) -> None:
        self._look(stack_of(sys._getframe()), wall_ns)

    def stop(self) -> None:
        pass


def make_evidence(folder: Path, *, steps: int, ranks: int, workers: int, seed: int = 0) -> None:
    """Writes the files of `ranks` trainers and `workers` workers of each into a session's folder."""
    ProbeSettings(str(folder), origin_us=0, origin_wall_us=0, boot_id=settings.boot_id(), observe=True).write()
    for rank in range(ranks):
        _in_process(lambda rank=rank: _rank(folder, steps, rank, ranks, workers, random.Random(f"{seed} {rank}")))


def _in_process(work: Callable[[], None]) -> int:
    """In a fork, which has a pid of its own, until it has ended."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
    return process.pid or 0


def _rank(folder: Path, steps: int, rank: int, ranks: int, workers: int, draw: random.Random) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    pids = [_in_process(lambda worker=worker: _work(folder, steps, worker, workers, draw)) for worker in range(workers)]
    _train(folder, steps, pids, draw)


def _probe(folder: Path) -> tuple[Probe, MadeTime]:
    made = MadeTime()
    for module in (batch_production, settings, stages):
        module.time = made  # type: ignore[attr-defined]
    training.now = made.monotonic_ns
    probe = Probe(ProbeSettings.read(str(folder)))
    probe.batches.sampler = OneLookABatch(probe)  # type: ignore[assignment]
    return probe, made


def _work(folder: Path, steps: int, worker: int, workers: int, draw: random.Random) -> None:
    probe, made = _probe(folder)
    known = [probe.timer.stage(category, label) for category, label in STAGES]
    rest = probe.timer.stage("getitem", "rest")
    collate = probe.timer.stage("collate", "default_collate")
    facts = {"id": worker, "parent": os.getppid(), "num_workers": workers, "dataset": "made.Photos"}
    probe.evidence.write(("worker", probe.clock.now_us(), {**facts, "start_method": "fork", "started_us": 0}))
    a_stage_ns = 0.9 * STEP_NS * workers / (SAMPLES * len(known))
    for index in range(worker, steps, workers):
        batch = probe.batches.begin(0, index)
        for _ in range(SAMPLES):
            batch.account.enter(rest)
            for stage in known:
                _spend(probe, made, stage, draw.expovariate(1 / a_stage_ns))
            made.pass_by(20_000)
            batch.account.leave()
        batch.samples = SAMPLES
        _spend(probe, made, collate, 3e6)
        probe.batches.end(batch)
        made.pass_by(2e6)
        probe.batches.write(batch, made.monotonic_ns(), 1_500_000)
    probe.batches.flush()
    probe.evidence.write_last(("end", probe.clock.now_us(), "exit"))


def _spend(probe: Probe, made: MadeTime, stage: int, ns: float) -> None:
    account = probe.stages.enter(stage)
    made.pass_by(ns)
    if account is not None:
        account.leave()


def _train(folder: Path, steps: int, pids: list[int], draw: random.Random) -> None:
    probe, made = _probe(folder)
    loop = probe.training
    loop.marks = DeviceMarks(MadeDevice(made))
    shape = probe.evidence.name(SHAPE)
    facts = {"num_workers": len(pids), "batch_size": SAMPLES, "prefetch_factor": 2, "dataset": "made.Photos"}
    probe.evidence.write(("loader", 0, 0, facts), ("pass", 0, 0, 0, 100_000, 0, pids))
    for index in range(steps):
        start = loop.batch_requested()
        made.pass_by(draw.expovariate(1 / (0.3 * STEP_NS)))
        arrived = made.monotonic_ns() - 200_000
        end = loop.batch_returned()
        loop.record_batch(
            FetchedBatch(0, index, start, end, arrived, 150_000, arrived, 100_000, BATCH_BYTES, shape, 120_000), True
        )
        _span(loop, made, "h", "i", 0.02 * STEP_NS)
        made.pass_by(0.2 * STEP_NS)
        _span(loop, made, "b", "c", draw.gauss(0.4, 0.02) * STEP_NS)
        loop.optimizer_begins(loop)
        made.pass_by(0.05 * STEP_NS)
        loop.optimizer_ends(loop)
    loop.finish()
    probe.evidence.write_last(("end", probe.clock.now_us(), "exit"))


def _span(loop: TrainingObserver, made: MadeTime, kind: str, end_mark: str, ns: float) -> None:
    loop.enter(kind, kind)
    made.pass_by(ns)
    loop.leave(end_mark)
