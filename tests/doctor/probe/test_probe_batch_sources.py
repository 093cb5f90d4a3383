"""Batches that no DataLoader gives: what the loop calls for one is found, timed and named, or said not to be seen."""

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
from observed_runs import observe, python
from probing import notes, probed, records
from processes import source_paths
from report_pages import codes
from torch import Tensor

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.probe.hooks import batch_sources
from headrace.doctor.session import read_session
from headrace.doctor.session.model import CommandOutcome
from headrace.doctor.session.storage import decode_session

STEPS = 6
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # type: ignore[attr-defined]
criterion = torch.nn.MSELoss()
Pair = tuple[Tensor, Tensor]


def get_batch(split: str) -> Pair:
    assert split == "train"
    return torch.randn(4, 8), torch.zeros(4, 1)


class Data:
    """Gives batches when it is asked."""

    def next_batch(self) -> dict[str, Tensor]:
        return dict(zip("xy", get_batch("train"), strict=True))


class Pipe:
    """An iterator of its own class, as DALI's is."""

    left = STEPS

    def __iter__(self) -> Pipe:
        return self

    def __next__(self) -> list[dict[str, Tensor]]:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return [Data().next_batch()]


def generated() -> Iterator[Pair]:
    for _ in range(STEPS):
        yield get_batch("train")


def rate(step: int) -> float:
    return 0.1 / (1 + step)


def train_on(x: Tensor, y: Tensor) -> None:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()


def by_function() -> None:
    x, y = get_batch("train")
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        for _ in range(2):
            prediction = model(x)
            loss = criterion(prediction, y)
            x, y = get_batch("train")
            loss.backward()
        optimizer.step()


def by_method() -> None:
    data = Data()
    for _ in range(STEPS):
        batch = data.next_batch()
        x, y = batch["x"].float(), batch["y"]
        train_on(x, y)


def by_iterator() -> None:
    for _number, batch in enumerate(Pipe()):
        train_on(batch[0]["x"], batch[0]["y"])


def by_generator_anew() -> None:
    for _ in range(3):
        for x, y in generated():
            train_on(x, y)


def seen(folder: Path) -> Diagnosis:
    session = read_session(folder, outcome=CommandOutcome(["python", "train.py"], 0, "finished", 1), mode="observe")
    return diagnose(session)


@pytest.mark.parametrize(
    ("train", "name", "batches"),
    [
        (by_function, "get_batch", 2 * STEPS - 2),
        (by_method, "Data.next_batch", STEPS - 2),
        (by_iterator, "Pipe", STEPS - 2),
        (by_generator_anew, "generated", 2 * STEPS),
    ],
)
@pytest.mark.one_in(2)
def test_what_the_loop_calls_is_found(tmp_path: Path, train: Any, name: str, batches: int) -> None:
    """The batches of the first two steps came before the source was known."""
    original = get_batch
    with probed(tmp_path):
        train()
    assert get_batch is original
    (facts,) = [loader[3] for loader in records(tmp_path, "loader")]
    assert (facts["source"], Path(facts["file"]).name) == (name, Path(__file__).name)
    gets = records(tmp_path, "get")
    assert len(gets) == batches
    assert [get[2] for get in gets] == list(range(batches))
    assert all(get[9] > 0 for get in gets)
    assert {part.name.partition(",")[0] for one in seen(tmp_path).causes for part in one.parts} == {f"source:{name}"}
    assert {"hook-off", "not-seen"}.isdisjoint(notes(tmp_path))


def test_a_loop_without_any_source_is_left_alone(tmp_path: Path) -> None:
    x, y = get_batch("train")
    with probed(tmp_path):
        for _ in range(STEPS):
            train_on(x, y)
    assert records(tmp_path, "loader", "get") == []
    assert notes(tmp_path) == {}


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


@pytest.mark.long
def test_a_trainer_on_a_memory_map(tmp_path: Path) -> None:
    run = observe(python("memory_map.py", 40, 3), tmp_path)
    assert run.status == 0, run.error
    (causes,) = [one.text for one in run.diagnosis.statements if one.code == "causes"]
    assert causes.startswith("100 %")
    assert "(get_batch, memory_map.py:" in causes
    (trainer,) = run.session.trainers
    assert trainer.gets.start
    assert trainer.fetches.start  # of the evaluations, for which no step waits
    assert "training process" not in causes


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


TOKENS = torch.arange(8.0)


def transformed(batch: Tensor) -> Tensor:
    return batch * 2


def drawn(tokens: Tensor) -> Tensor:
    return tokens + torch.randn(4, 8)


def step_on(batch: Tensor) -> None:
    x = transformed(batch)
    train_on(x, torch.zeros(4, 1))


def by_argument() -> None:
    for _ in range(STEPS):
        step_on(drawn(TOKENS))


@pytest.mark.parametrize(("train", "name"), [(by_argument, "drawn")])
def test_what_only_changes_a_batch_in_hand_gives_none(tmp_path: Path, train: Any, name: str) -> None:
    with probed(tmp_path):
        train()
        train()
    (facts,) = [loader[3] for loader in records(tmp_path, "loader")]
    assert facts["source"] == name
