"""What of the batches of a process is written when, and what hooks do when they fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import probing
import pytest
from library_probe import LibraryProbe
from probing import notes, probed
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
    return [kind for kind in kinds(probe) if kind in ("batch", "probe")]


def make_batch(probe: Probe, index: int, *, sent: int | None = None) -> None:
    batch = probe.batches.begin(0, index)
    probe.batches.end(batch)
    probe.batches.write(batch, sent=sent)


def test_other_records_wait_until_they_are_due(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    make_batch(probe, 0, sent=0)
    make_batch(probe, 1, sent=0)
    assert of_batches(probe) == ["batch", "batch"]
    monkeypatch.setattr(probe.batches, "_due", 0)
    make_batch(probe, 2)
    assert of_batches(probe) == ["batch", "batch", "batch", "probe"]


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
    assert told[-1][0] == "probe"
    (batch_record,) = (record for record in told if record[0] == "batch")
    assert batch_record[5] - batch_record[4] in (5, 6)  # rounded
    assert batch_record[6] == 2


def test_a_batch_that_hangs_is_told(probe: Probe) -> None:
    batch = probe.batches.begin(3, 7)
    probe.batches._hung(batch, 12_000_000_000, "  File …")
    probe.batches.drop(batch)
    (stack,) = (record for record in records(probe) if record[0] == "stack")
    assert stack[2:] == ["hung", "batch 7 of epoch 3 has been in the making for 12 s:\n  File …"]


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
