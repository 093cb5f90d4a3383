"""Windows of a measured run whose batches a library gives without a DataLoader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from probing import notes, probed, records
from torch import Tensor

from headrace.doctor.probe.hooks import batch_sources
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.step_limit import StepsMeasured

WARMUP, STEPS, REPLAY = 2, 6, 4
MEASURED: dict[str, Any] = {
    "observe": False,
    "warmup": WARMUP,
    "steps": STEPS,
    "replay": REPLAY,
    "drain_s": 5.0,
}
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # type: ignore[attr-defined]


class EpochIterator:
    """Iterator of batches, of its own class."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Tensor:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return torch.ones(4, 8)


def train_on(x: Tensor) -> None:
    model(x).sum().backward()
    optimizer.step()


def measured(folder: Path, train: Callable[[Probe], None], **changed: Any) -> None:
    with probed(folder, **{**MEASURED, **changed}) as probe, pytest.raises(StepsMeasured):
        train(probe)
    assert "hook-off" not in notes(folder)


def windows(folder: Path) -> list[str]:
    return [window[1] for window in records(folder, "window")]


def installed(probe: Probe, name: str, **classes: type) -> None:
    module = ModuleType(name)
    vars(module).update(classes)
    batch_sources.install_source_library(probe.patches, probe.training, module)


def test_what_works_ahead_is_taken_from_in_a_thread_while_copies_are_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takers: set[str] = set()

    class Taken(EpochIterator):
        def __next__(self) -> Tensor:
            takers.add(threading.current_thread().name)
            return super().__next__()

    def train(probe: Probe) -> None:
        installed(probe, "nvidia.dali.plugin.pytorch", DALIGenericIterator=Taken)
        for x in Taken(10_000):
            train_on(x)

    monkeypatch.setattr("headrace.doctor.probe.training.replay.UNTOLD_PAUSE_S", 0.0)
    measured(tmp_path, train)
    assert windows(tmp_path) == ["observe", "replay", "load", "drain"]
    assert takers == {threading.main_thread().name, "headrace-load"}


def test_a_batch_that_cannot_be_copied_is_said_to_be_so(tmp_path: Path) -> None:
    class TensorList:
        def as_tensor(self) -> Tensor:
            return torch.ones(4, 8)

    class Pipeline:
        num_threads, prefetch_queue_depth, device_id = 3, 2, None

        def run(self) -> TensorList:
            return TensorList()

    def train(probe: Probe) -> None:
        installed(probe, "nvidia.dali.pipeline", Pipeline=Pipeline)
        pipeline = Pipeline()
        for _ in range(1000):
            train_on(pipeline.run().as_tensor())

    measured(tmp_path, train)
    assert windows(tmp_path) == ["observe"]
    assert notes(tmp_path)["no-replay"].partition(" its batches ")[2].startswith("hold no tensors")
    (facts,) = [record[3] for record in records(tmp_path, "loader")]
    assert facts["settings"] == {"num_threads": 3, "prefetch_queue_depth": 2, "device_id": None}


def test_a_pipeline_in_a_worker_process_is_no_trainers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A WebDataset within a DataLoader's worker, say: its trainer has a wait for what it makes, and it has none."""
    monkeypatch.setattr(batch_sources, "current_process", lambda: SimpleNamespace(daemon=True))
    with probed(tmp_path) as probe:
        installed(probe, "nvidia.dali.plugin.pytorch", DALIGenericIterator=EpochIterator)
        assert len(list(EpochIterator(3))) == 3
    assert records(tmp_path, "loader", "get", "note") == []


def test_a_webdataset_without_a_loader_is_replayed_and_has_nothing_ahead(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")

    def samples() -> Iterator[Tensor]:
        for _ in range(WARMUP + STEPS + 1):
            yield torch.ones(4, 8)

    def train(_: Probe) -> None:
        pipeline = wds.DataPipeline(samples)
        while True:
            for x in pipeline:
                train_on(x)

    measured(tmp_path, train)
    assert windows(tmp_path) == ["observe", "replay", "drain"]
    assert len(records(tmp_path, "drained")) == REPLAY
