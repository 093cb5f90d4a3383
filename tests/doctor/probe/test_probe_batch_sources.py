"""Batches that no DataLoader gives: iterators of known libraries are timed and named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from probing import probed, records
from processes import source_paths
from report_pages import codes
from torch import Tensor

from headrace.doctor.causes import diagnose
from headrace.doctor.probe.hooks import batch_sources
from headrace.doctor.session.storage import decode_session

STEPS = 6
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # type: ignore[attr-defined]
criterion = torch.nn.MSELoss()
Pair = tuple[Tensor, Tensor]


def get_batch() -> Pair:
    return torch.randn(4, 8), torch.zeros(4, 1)


class Pipe:
    """An iterator of its own class, as DALI's is."""

    left = STEPS

    def __iter__(self) -> Pipe:
        return self

    def __next__(self) -> list[dict[str, Tensor]]:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return [dict(zip("xy", get_batch(), strict=True))]


def generated() -> Iterator[Pair]:
    for _ in range(STEPS):
        yield get_batch()


def train_on(x: Tensor, y: Tensor) -> None:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()


def test_a_known_librarys_iterator_is_timed_from_its_first_batch(tmp_path: Path) -> None:
    """A stand-in of the shape of DALI's iterators."""
    module = ModuleType("nvidia.dali.plugin.pytorch")
    kind = type("DALIGenericIterator", (), dict(vars(Pipe)))
    vars(module).update(DALIGenericIterator=kind)
    with probed(tmp_path) as probe:
        batch_sources.install_source_library(probe.patches, probe.training, module)
        for batch in kind():
            train_on(batch[0]["x"], batch[0]["y"])
    assert len(records(tmp_path, "get")) == STEPS
    (facts,) = [loader[3] for loader in records(tmp_path, "loader")]
    assert facts["source"] == "nvidia.DALIGenericIterator"


def test_a_webdataset_without_a_loader_is_timed(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")

    def samples() -> Iterator[Pair]:
        yield from generated()

    with probed(tmp_path):
        for x, y in wds.DataPipeline(samples):
            train_on(x, y)
    assert len(records(tmp_path, "get")) == STEPS
    assert records(tmp_path, "loader")[0][3]["source"] == "webdataset.DataPipeline"


@pytest.mark.long
def test_a_webloader_is_seen_by_the_dataloader_in_it(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    with probed(tmp_path):
        data = [(torch.randn(8), torch.zeros(1)) for _ in range(24)]
        for x, y in wds.WebLoader(data, batch_size=4):
            train_on(x, y)
    assert len(records(tmp_path, "get")) == STEPS
    assert "source" not in records(tmp_path, "loader")[0][3]


WAITING = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
begun = time.monotonic()
for number, _ in enumerate(DataLoader(TensorDataset(torch.zeros(100_000, 8)), batch_size=4)):
    while time.monotonic() - begun < 0.2 * min(number, 8):
        sum(range(1000))
    if number == 8:
        print("going on", flush=True)
    if number >= 8:
        time.sleep(60)
"""


@pytest.mark.long
def test_a_diagnosis_that_is_terminated_says_what_was_seen(tmp_path: Path) -> None:
    """Of a run that never trains; the signal kills it where it stands."""
    script, document = tmp_path / "waits.py", tmp_path / "session.json"
    script.write_text(WAITING)
    doctor = ["doctor", "--json", str(document), "--", sys.executable, str(script)]
    start = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"
    run = subprocess.Popen(
        [sys.executable, "-c", start, *doctor],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, source_paths()))},
    )
    assert run.stdout is not None
    with run:
        assert "going on\n" in iter(run.stdout.readline, "")
        run.send_signal(signal.SIGTERM)
        run.communicate()
    diagnosis = diagnose(decode_session(document.read_bytes()))
    assert codes(diagnosis)[0] == "interrupted"
    assert diagnosis.wait_share is not None


def test_a_known_librarys_batch_counts_though_it_holds_no_tensor(tmp_path: Path) -> None:
    """A stand-in of the shape of DALI's pipeline, whose run() gives lists of its own."""

    class TensorList:
        def as_tensor(self) -> Tensor:
            return torch.zeros(4, 8)

    module = ModuleType("nvidia.dali.pipeline")
    kind = type("Pipeline", (), {"run": lambda self: (TensorList(), TensorList())})
    vars(module).update(Pipeline=kind)
    with probed(tmp_path) as probe:
        batch_sources.install_source_library(probe.patches, probe.training, module)
        pipeline = kind()
        for _ in range(STEPS):
            images, _ = pipeline.run()
            train_on(images.as_tensor(), torch.zeros(4, 1))
    gets = records(tmp_path, "get")
    assert len(gets) == STEPS
    assert {get[9] for get in gets} == {None}


def test_a_pipeline_behind_a_loader_goes_to_work_at_its_next_and_waits_only_for_the_loader(tmp_path: Path) -> None:
    """A stand-in of the shape of webdataset's WebLoader."""

    class DataPipeline:
        def __init__(self, *stages: Any) -> None:
            self.pipeline = list(stages)

        def __iter__(self) -> Iterator[Any]:
            for batch in self.pipeline[0]:
                for half in zip(*(tensor.chunk(2) for tensor in batch), strict=True):
                    time.sleep(0.002)
                    yield half

    module = ModuleType("webdataset.pipeline")
    vars(module).update(DataPipeline=DataPipeline)
    batches = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(24, 8), torch.zeros(24, 1)), batch_size=8
    )
    with probed(tmp_path) as probe:
        batch_sources.install_source_library(probe.patches, probe.training, module)
        for x, y in DataPipeline(batches):
            train_on(x, y)
    assert len(records(tmp_path, "get")) == 3
    steps = records(tmp_path, "step")
    assert len(steps) == 6
    assert all(sum(us for kind, _, us in step[4] if kind == "d") >= 2_000 for step in steps)
