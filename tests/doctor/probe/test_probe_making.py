"""What of the batches of a process is written when, and what hooks do when they fail."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import maker_script
import probing
import pytest
from maker_script import BATCH, KEYS
from probing import LibraryProbe, notes, probed, run_probed
from torch.utils.data import DataLoader
from training_loops import Stream

from headrace.doctor.probe.evidence_file import MOST_HELD
from headrace.doctor.probe.patches import HookGuard
from headrace.doctor.probe.probe import Probe


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    probe = LibraryProbe(tmp_path / "session").probe
    yield probe
    probe.detach()


def records(probe: Probe) -> list[Any]:
    return [json.loads(line) for line in Path(probe.evidence.path).read_text().splitlines()]


def kinds(probe: Probe) -> list[str]:
    return [record[0] for record in records(probe)]


def of_batches(probe: Probe) -> list[str]:
    """Kinds of records, lines apart: whether a look fell into a batch is chance."""
    return [kind for kind in kinds(probe) if kind in ("batch", "remote")]


def make_batch(probe: Probe, index: int, *, sent: int | None = None) -> None:
    batch = probe.batches.begin(0, index)
    probe.batches.end(batch)
    probe.batches.write(batch, sent=sent)


def test_other_records_wait_until_they_are_due(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    probe.batches.remote.answered("s3://photos", 0, 100)
    make_batch(probe, 0, sent=0)
    make_batch(probe, 1, sent=0)
    assert of_batches(probe) == ["batch", "batch"]
    monkeypatch.setattr(probe.batches, "_due", 0)
    make_batch(probe, 2)
    assert of_batches(probe) == ["batch", "batch", "batch", "remote"]


def test_batches_of_the_training_thread_are_written_together(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    make_batch(probe, 0)
    assert of_batches(probe) == ["batch"]  # nothing was written for long
    for index in range(1, MOST_HELD):
        make_batch(probe, index)
    assert len(of_batches(probe)) == 1
    make_batch(probe, MOST_HELD)
    assert len(of_batches(probe)) == 1 + MOST_HELD
    make_batch(probe, MOST_HELD + 1)
    monkeypatch.setattr(probe.batches, "_written_at", 0)  # long ago
    make_batch(probe, MOST_HELD + 2)
    assert len(of_batches(probe)) == 3 + MOST_HELD


def test_a_batch_sent_after_the_end_of_the_loop_is_written_whole(probe: Probe) -> None:
    """The queue's own thread sends it."""
    batch = probe.batches.begin(0, 0)
    probe.batches.end(batch)
    probe.batches.close()
    probe.batches.write(batch, sent=batch.end + 5_000, serialise=2_000)
    told = records(probe)
    (batch_record,) = (record for record in told if record[0] == "batch")
    assert batch_record[5] - batch_record[4] in (5, 6)  # rounded
    assert batch_record[6] == 2


def test_a_hook_that_fails_is_off_and_told_once(probe: Probe) -> None:
    guard = HookGuard(probe.fault, "loop")
    calls: list[int] = []

    def fail(number: int) -> None:
        calls.append(number)
        raise LookupError("oh")

    failing, other = guard(fail), guard(calls.append)
    other(1)
    assert [failing(2), failing(3), other(4)] == [None, None, None]
    assert calls == [1, 2]
    assert [record[2:] for record in records(probe) if record[0] == "note"] == [["hook-off", "loop: LookupError: oh"]]


@pytest.mark.parametrize("source", [list(range(16)), Stream(16)], ids=["map", "stream"])
def test_the_calls_of_a_batch_are_its_samples(tmp_path: Path, source: Any) -> None:
    with probed(tmp_path):
        assert [len(batch) for batch in DataLoader(source, batch_size=5)] == [5, 5, 5, 1]
    names = {number: text for _, number, text in probing.records(tmp_path, "name")}
    batches = probing.records(tmp_path, "batch")
    assert [batch[7] for batch in batches] == [5, 5, 5, 1]
    calls = [{names[stage]: calls for stage, calls, *_ in batch[8]} for batch in batches]
    assert [call["getitem:rest"] for call in calls] == [5, 5, 5, 1]
    assert all(sum(stage[2] for stage in batch[8]) == batch[4] - batch[3] for batch in batches)
    assert "hook-off" not in notes(tmp_path)


class Lazy(list[int]):
    """Dataset whose samples of a batch come as a generator."""

    def __getitems__(self, indices: list[int]) -> Iterator[int]:
        return (self[index] for index in indices)


def test_samples_of_a_batch_without_a_length_reach_the_users_collate(tmp_path: Path) -> None:
    with probed(tmp_path):
        assert list(DataLoader(Lazy(range(6)), batch_size=4, collate_fn=list)) == [[0, 1, 2, 3], [4, 5]]
    assert [batch[7] for batch in probing.records(tmp_path, "batch")] == [4, 2]
    assert "hook-off" not in notes(tmp_path)


LOADER = """
import os, sys, threading
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, key):
        return work(key)

def probes():
    return [thread for thread in threading.enumerate() if thread.name.startswith("headrace")]

def load():
    return [float(key) for batch in DataLoader(Numbers(), 2) for key in batch]
"""
WHOLE = "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\n"

FORKS = """
work = int
def say():
    os.write(1, f"{load()}\\n".encode())  # in one write: two processes share the pipe
say()
assert probes()
child = os.fork()
assert probes() == []
say()
if child == 0:
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
"""

ENDS_IN_A_BATCH = """
begun = threading.Event()
def work(key):
    begun.set()
    threading.Event().wait()
threading.Thread(target=load, daemon=True).start()
begun.wait()
print("ends")
"""


@pytest.mark.parametrize(
    ("source", "out"),
    [pytest.param(FORKS, 3 * WHOLE, marks=pytest.mark.long), (ENDS_IN_A_BATCH, "ends\n")],
    ids=["forks", "ends in a batch"],
)
@pytest.mark.long
def test_a_process_ends_as_it_would(tmp_path: Path, source: str, out: str) -> None:
    """Warnings are errors there, such as that of a fork beside threads."""
    command = [sys.executable, "-W", "error", "-c", LOADER + textwrap.dedent(source)]
    ran = run_probed(command, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, out, "")
    assert '"hook-off"' not in "".join(path.read_text() for path in (tmp_path / "evidence").iterdir())


BATCHES = KEYS // BATCH


@dataclass
class Process:
    """The records of one, its names filled in."""

    facts: dict[str, Any]
    worker: dict[str, Any] | None = None
    batches: list[Any] = field(default_factory=list)
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
        elif kind == "note":
            process.notes.append(rest)
        elif kind == "get":
            process.gets.append(rest)
        elif kind == "end":
            process.has_ended = True
    return process


def _workers(processes: list[Process], dataset: str, start: str) -> list[Process]:
    found = ((one, one.worker) for one in processes if one.worker is not None and one.worker["start_method"] == start)
    return [one for one, worker in found if worker["dataset"].endswith(dataset)]


@pytest.mark.long
def test_no_hook_fails(processes: list[Process]) -> None:
    assert [note for process in processes for note in process.notes if note[1] == "hook-off"] == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_tell_each_batch_of_each_epoch(processes: list[Process], trainer: Process, start: str) -> None:
    (worker,) = _workers(processes, "Numbers", start)
    assert worker.worker is not None
    assert [worker.worker[name] for name in ("id", "parent")] == [0, trainer.facts["pid"]]
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
