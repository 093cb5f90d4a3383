"""Evidence files and sessions of trainings that never ran: a small simulation, so that all their truth is known.

Times are microseconds. One trainer asks its loader for a batch, computes, steps; workers make batches in turn.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.session.evidence_reader import read_session
from headrace.doctor.session.model import CommandOutcome, Machine, Session

HOST = "host"
Records = list[list[Any]]


@dataclass(frozen=True)
class MadeRun:
    """What one rank does. A worker makes a batch of `samples` in `stages` (wall of each, by `category:label`), takes
    `pickle` to send it and the trainer `unpickle` to receive it; then come `forward`, `backward` and `optimizer`."""

    steps: int = 40
    workers: int = 2
    prefetch: int = 2
    stages: dict[str, int] = field(default_factory=lambda: {"decode:PIL.Image.load": 8_000, "collate:default": 2_000})
    slow_batches: dict[int, int] = field(default_factory=dict)
    """More time of the first stage, by index of the batch."""
    cpu: float = 0.5
    """Share of its wall time that a stage computes."""
    samples: int = 4
    pickle: int = 0
    unpickle: int = 0
    forward: int = 1_000
    more_forward: dict[int, int] = field(default_factory=dict)
    """More time of the forward pass, by number of the step."""
    backward: int = 2_000
    optimizer: int = 500
    logging: int = 0
    """Between a step's end and the next `next()`."""
    begun: int = 0
    """When the workers begin, after iter()."""
    rank: int | None = None
    pid: int = 100
    host: str = HOST
    probe: float = 20.0
    facts: dict[str, Any] = field(default_factory=dict)
    """Of the loader, over its usual ones."""
    gpu: bool = False


def write_evidence(folder: Path, name: str, records: Records) -> Path:
    """One file of a session's evidence."""
    path = folder / "evidence" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_settings(folder: Path, **settings: Any) -> None:
    ProbeSettings(**({"folder": str(folder), "origin_us": 0, "origin_wall_us": 0, "boot_id": ""} | settings)).write()


def outcome(**changes: Any) -> CommandOutcome:
    usual = CommandOutcome(command=["python", "train.py"], status=0, why="finished", duration=1_000_000)
    return replace(usual, **changes)


def process(pid: int, *, parent: int = 1, host: str = HOST, t: int = 0, **facts: Any) -> list[Any]:
    """A file's first line."""
    return ["process", t, {"version": 1, "pid": pid, "parent": parent, "host": host, "rank": None, **facts}]


def write_run(folder: Path, run: MadeRun) -> None:
    """The evidence files of one rank and its workers."""
    for name, records in simulate(run).items():
        write_evidence(folder, name, records)


def read(folder: Path, **arguments: Any) -> Session:
    given: dict[str, Any] = {"outcome": outcome(), "mode": "observe"}
    session = read_session(folder, **(given | arguments))
    return replace(session, created="2026-01-02T03:04:05Z", headrace="0.0.0")


def made_session(folder: Path, *runs: MadeRun, settings: dict[str, Any] | None = None, **arguments: Any) -> Session:
    """The session of some ranks, merged from evidence written to `folder`."""
    write_settings(folder, **(settings or {}))
    for run in runs or [MadeRun()]:
        write_run(folder, run)
    return read(folder, **arguments)


def machine(**facts: Any) -> Machine:
    return Machine(host=HOST, facts=facts)


def simulate(run: MadeRun) -> dict[str, Records]:
    """Records by name of file."""
    return _Simulation(run).files()


class _Simulation:
    """The trainer's clock is `now`; `free[worker]` is when each worker can begin its next batch."""

    def __init__(self, run: MadeRun) -> None:
        self.run = run
        self.now = 0
        self.free = [run.begun] * max(run.workers, 1)
        self.makers: list[Records] = [[] for _ in self.free]
        self.trainer: Records = []
        self.ready: dict[int, tuple[int, int]] = {}
        self.asked = 0
        self.stage_numbers = {name: number for number, name in enumerate(run.stages)}

    def files(self) -> dict[str, Records]:
        run = self.run
        worker_pids = [run.pid + 1 + worker for worker in range(run.workers)]
        self.trainer.append(process(run.pid, host=run.host, rank=run.rank))
        self.trainer.append(["torch", 0, {"version": "2.9", "cuda": "12" if run.gpu else None}])
        self.trainer.append(["facts", 0, {"device": "GPU" if run.gpu else None}])
        self.trainer.append(["name", 0, f"float32[{run.samples},3,8,8]"])
        self.trainer.append(["loader", 0, 0, self._loader_facts()])
        self.trainer.append(["pass", 0, 0, 0, 0, 0, worker_pids or [run.pid]])
        for _ in range(run.prefetch * run.workers):
            self._ask()
        end = 0
        for step in range(run.steps):
            end = self._step(step, end)
        self.trainer.append(["end", self.now, "exit"])
        return {f"{run.host}-{run.pid}-0": self._trainer_file()} | {
            f"{run.host}-{pid}-0": self._worker_file(pid, worker) for worker, pid in enumerate(worker_pids)
        }

    def _loader_facts(self) -> dict[str, Any]:
        run = self.run
        usual = {
            "num_workers": run.workers,
            "prefetch_factor": run.prefetch if run.workers else None,
            "batch_size": run.samples,
            "persistent_workers": False,
            "pin_memory": False,
            "in_order": True,
            "length": None,
            "file": "train.py",
            "line": 12,
            "made": "train.py:9",
        }
        return usual | run.facts

    def _trainer_file(self) -> Records:
        return [*self.trainer[:1], *self._stage_names(), *self.trainer[1:], *self._own_batches()]

    def _worker_file(self, pid: int, worker: int) -> Records:
        first = process(pid, parent=self.run.pid, host=self.run.host)
        begun = ["worker", self.run.begun, {"id": worker, "parent": self.run.pid}]
        return [first, *self._stage_names(), begun, *self.makers[worker], ["end", self.now, "exit"]]

    def _own_batches(self) -> Records:
        return self.makers[0] if self.run.workers == 0 else []

    def _stage_names(self) -> Records:
        return [["name", 10 + number, name] for name, number in self.stage_numbers.items()]

    def _make(self, index: int, start: int) -> tuple[int, int]:
        """When it is fetched, and in the pipe."""
        run = self.run
        walls = dict(run.stages)
        walls[next(iter(walls))] += run.slow_batches.get(index, 0)
        fetched = start + sum(walls.values())
        sent = fetched + run.pickle
        numbers = self.stage_numbers
        stages = [[10 + numbers[name], run.samples, wall, int(wall * run.cpu)] for name, wall in walls.items()]
        times = [start, fetched, None, None] if run.workers == 0 else [start, fetched, sent, run.pickle]
        self.makers[index % len(self.makers)].append(["batch", 0, index, *times, run.samples, stages])
        return fetched, sent

    def _ask(self) -> None:
        """The next index goes to the worker whose turn it is. It sends while it makes the one after."""
        index, self.asked = self.asked, self.asked + 1
        worker = index % self.run.workers
        fetched, sent = self._make(index, max(self.free[worker], self.now))
        self.free[worker] = fetched
        self.ready[index] = fetched, sent

    def _get(self, index: int) -> None:
        run, start = self.run, self.now
        if run.workers == 0:
            self.now, arrived, unpickle = self._make(index, start)[0], None, None
        else:
            self.now = arrived = max(start, self.ready[index][1]) + run.unpickle
            unpickle = run.unpickle
            self._ask()
        duration = self.now - start
        self.trainer.append(["get", 0, index, start, duration, arrived, unpickle, None, None, 4096, 0])

    def _step(self, number: int, start: int) -> int:
        run = self.run
        self.now += run.logging
        asked = self.now
        self._get(number)
        got = self.now
        backward = got + run.forward + run.more_forward.get(number, 0)
        optimizer = backward + run.backward
        self.now = end = optimizer + run.optimizer
        spans = [["b", backward - start, run.backward], ["o", optimizer - start, run.optimizer]]
        self.trainer.append(["step", number, start, end, spans, run.probe * 10])
        if run.gpu:
            moments = [("s", start), ("w", asked), ("r", got), ("b", backward), ("c", optimizer)]
            marks = [*moments, ("o", optimizer), ("p", end)]
            times = [us * 10 for _, us in marks]
            gaps = [time - before for before, time in itertools.pairwise([0, *times])]
            self.trainer.append(["device", number, "".join(kind for kind, _ in marks), gaps])
        return end


# Fields, copies with changed fields as of Python 3.13, and an answer that must not be asked for.


def field_names(value: Any) -> tuple[str, ...]:
    """Names of its fields; none of any other value."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    is_plain = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return tuple(field.name for field in dataclasses.fields(value)) if is_plain else ()


def replace(value: Any, **changes: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)


class _Unasked:
    def __bool__(self) -> bool:
        raise AssertionError("it was asked for")


UNASKED: Any = _Unasked()
