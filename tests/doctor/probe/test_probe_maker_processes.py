"""What processes that make batches write down, in a program that loads data in every way."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import maker_script
import pytest
from maker_script import BATCH, KEYS
from probed import run_probed

BATCHES = KEYS // BATCH


@dataclass
class Process:
    """The records of one, its names filled in."""

    facts: dict[str, Any]
    worker: dict[str, Any] | None = None
    batches: list[Any] = field(default_factory=list)
    probe: list[int] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)
    has_ended: bool = False
    names: list[str] = field(default_factory=list)
    gets: list[Any] = field(default_factory=list)

    def stages(self, batch: Any) -> dict[str, list[int]]:
        return {self.names[number]: rest for number, *rest in batch[8]}

    def passes(self) -> dict[int, list[Any]]:
        """Batches by epoch."""
        epochs: dict[int, list[Any]] = {}
        for batch in self.batches:
            epochs.setdefault(batch[1], []).append(batch)
        return epochs


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[Process]:
    folder = tmp_path_factory.mktemp("session")
    ran = run_probed([sys.executable, str(Path(maker_script.__file__))], folder)
    assert ran.returncode == 0, ran.stderr
    return [_read(path) for path in sorted((folder / "evidence").iterdir())]


@pytest.fixture(scope="module")
def trainer(processes: list[Process]) -> Process:
    (trainer,) = (process for process in processes if process.worker is None and process.batches)
    return trainer


def _read(path: Path) -> Process:
    records: Iterator[Any] = map(json.loads, path.read_text().splitlines())
    process = Process(next(records)[2])
    for kind, *rest in records:
        if kind == "name":
            process.names.append(rest[1])
        elif kind == "worker":
            process.worker = rest[1]
        elif kind == "batch":
            process.batches.append([kind, *rest])
        elif kind == "probe":
            process.probe.append(rest[1])
        elif kind == "note":
            process.notes.append(rest)
        elif kind == "get":
            process.gets.append(rest)
        elif kind == "end":
            process.has_ended = True
    return process


def _workers(processes: list[Process], dataset: str, start: str) -> list[Process]:
    return [
        process
        for process in processes
        if process.worker is not None
        and process.worker["dataset"].endswith(dataset)
        and process.worker["start_method"] == start
    ]


@pytest.mark.long
def test_no_hook_fails(processes: list[Process]) -> None:
    assert [note for process in processes for note in process.notes if note[1] == "hook-off"] == []


@pytest.mark.long
def test_stages_sum_to_the_time_that_a_batch_took(processes: list[Process]) -> None:
    batches = [batch for process in processes for batch in process.batches]
    assert batches
    for batch in batches:
        assert sum(stage[2] for stage in batch[8]) == batch[4] - batch[3]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_tell_each_batch_of_each_epoch(processes: list[Process], start: str) -> None:
    (worker,) = _workers(processes, "Numbers", start)
    epochs = worker.passes()
    assert list(epochs) == [0, 1]
    for batches in epochs.values():
        assert [batch[2] for batch in batches] == list(range(BATCHES))
    for batch in worker.batches:
        _, _, _, start_us, fetched_us, sent_us, serialise_us, samples, *_ = batch
        assert start_us <= fetched_us <= sent_us
        assert 0 <= serialise_us <= sent_us - fetched_us
        assert samples == BATCH
        assert set(worker.stages(batch)) == {"other:fetch", "getitem:rest", "collate:collate"}
        assert worker.stages(batch)["getitem:rest"][0] == BATCH


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_says_what_it_is(processes: list[Process], trainer: Process, start: str) -> None:
    (worker,) = _workers(processes, "Numbers", start)
    assert worker.worker is not None
    assert worker.worker["id"] == 0
    assert worker.worker["num_workers"] == 1
    assert worker.worker["parent"] == trainer.facts["pid"]
    assert 0 < worker.worker["started_us"] < worker.batches[0][3]


def test_without_workers_the_trainer_makes_the_batches(trainer: Process) -> None:
    own = [batch for batch in trainer.batches if "collate:collate" in trainer.stages(batch)]
    assert [batch[2] for batch in own] == 2 * list(range(BATCHES))
    assert {batch[1] for batch in own} == {0, 1}  # the passes that the trainer's own records number
    assert {(batch[5], batch[6], batch[7]) for batch in own} == {(None, None, BATCH)}


def test_a_batch_made_is_a_batch_received(processes: list[Process], trainer: Process) -> None:
    """By pass, or by epoch of the workers', and index."""
    made = {(batch[1], batch[2]) for batch in trainer.batches if batch[1] >= 0}
    received = {(get[0], get[1]) for get in trainer.gets}
    assert made < received
    assert len(made) == len([batch for batch in trainer.batches if batch[1] >= 0])


def test_a_stream_is_told_without_its_end(processes: list[Process], trainer: Process) -> None:
    (worker,) = _workers(processes, "Stream", "fork")
    assert [(batch[2], batch[7]) for batch in worker.batches] == [(index, BATCH) for index in range(BATCHES)]
    unbatched = [batch for batch in trainer.batches if batch[7] is None]
    assert len(unbatched) == KEYS  # nobody knows whether what comes without batching is one sample


def test_what_other_threads_do_is_apart(trainer: Process) -> None:
    batches = [batch for batch in trainer.batches if len(batch) > 9 and batch[9]]
    assert len(batches) == BATCHES
    for batch in batches:
        beside = {trainer.names[number]: calls for number, calls, _, _ in batch[9]}
        assert beside == {"read:file": BATCH}
        assert trainer.stages(batch)["wait:future"][0] == BATCH
        assert "read:file" not in trainer.stages(batch)


def test_the_probe_tells_its_own_cost(processes: list[Process]) -> None:
    told = [process for process in processes if process.batches and process.has_ended]  # others are killed at the end
    assert len(told) > 2
    for process in told:
        assert process.probe == sorted(process.probe)
        assert process.probe[-1] > 0
