"""`with headrace.doctor.watch():` in this very process: what it sees, and that it leaves nothing behind."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch
from processes import DEADLINE_S
from rich.console import Console
from torch.utils.data import DataLoader, Dataset, dataloader

import headrace
from headrace.doctor.attach.injection import end_fork_server
from headrace.doctor.notebook import PROBE

BATCHES, BATCH = 8, 4


class Squares(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index * index))


def train(workers: int = 0, start: str | None = None) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(Squares(), batch_size=BATCH, num_workers=workers, multiprocessing_context=start):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def train_until_interrupted() -> None:
    train()
    raise KeyboardInterrupt


def train_until_it_fails() -> None:
    train()
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders go; nothing is left there, in the environment, among the threads or in torch."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    before = _state()
    yield folder
    after = _state()
    assert [name for name in before if before[name] != after[name]] == []
    assert list(folder.glob("headrace*")) == []


def _state() -> dict[str, object]:
    """Of this process, what a watch might change: the environment but for what pytest and torch itself set, where
    modules come from, threads, and what hooks take the place of."""
    owners = [DataLoader, dataloader._BaseDataLoaderIter, dataloader._SingleProcessDataLoaderIter, torch.autograd]
    return {
        "environment": {name: os.environ[name] for name in os.environ if not name.startswith(("PYTEST_", "TORCH"))},
        "path": sys.path[:],
        "finders": sys.meta_path[:],
        "threads": set(threading.enumerate()),
        **{f"{owner.__name__}": vars(owner).copy() for owner in owners},
    }


@pytest.mark.long
def test_says_what_the_loop_waited_for() -> None:
    file = io.StringIO()
    with headrace.doctor.watch(console=Console(file=file, width=100)) as watched:
        train()
    assert watched.session is not None
    assert watched.diagnosis is not None
    assert watched.session.mode == "watch"
    (trainer,) = watched.session.trainers
    assert (trainer.pid, len(trainer.steps.number), len(trainer.gets.index)) == (os.getpid(), BATCHES, BATCHES)
    shown = file.getvalue()
    assert "watched in this process" in shown
    assert "data wait" in shown
    assert shown.startswith(watched.diagnosis.verdict.text[:40])


@pytest.fixture
def advice_of_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let remedies rest on as few steps as a cell here trains."""
    monkeypatch.setattr("headrace.doctor.causes.prescription.LEAST_STEPS", BATCHES // 2)


CELL = """
for batch in DataLoader(Slow(), batch_size=4):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


class Slow(Squares):
    """Computes for 1 ms."""

    def __getitem__(self, index: int) -> torch.Tensor:
        ends = time.thread_time_ns() + 1_000_000
        while time.thread_time_ns() < ends:
            pass
        return super().__getitem__(index)


def run_cell() -> None:
    """As a notebook does: its text is in no file."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    names = {"DataLoader": DataLoader, "Slow": Slow, "model": model, "optimizer": optimizer}
    exec(compile(CELL, "<ipython-input-1-0a1b2c>", "exec"), names)


@pytest.mark.usefixtures("advice_of_few_steps")
def test_says_what_to_do_with_its_reason_and_its_change() -> None:
    """As the whole report of an observed command does. Where the cell's text is in no file, the change is a hint."""
    file = io.StringIO()
    with headrace.doctor.watch(console=Console(file=file, width=100)) as watched:
        run_cell()
    assert watched.session is not None
    assert watched.session.survey is not None
    assert watched.prescription is not None
    assert watched.prescription.lower_bounds is None
    workers = next(one for one in watched.prescription.remedies if one.code == "workers")
    assert (workers.helps, workers.edit) == (True, None)
    shown = " ".join(file.getvalue().split())
    assert f"{workers.title[1:]}: " in shown
    assert f"{workers.why} (confidence {workers.confidence})" in shown
    assert f"→ {' '.join(workers.hint.split())}" in shown
    assert "--verbose" not in shown
    assert "more: watch(verbose=True)" in shown


@pytest.mark.usefixtures("advice_of_few_steps")
@pytest.mark.long
def test_a_verbose_one_leaves_nothing_out() -> None:
    file = io.StringIO()
    with headrace.doctor.watch(verbose=True, console=Console(file=file, width=100)) as watched:
        train()
    assert watched.prescription is not None
    assert file.getvalue().count("would not help: ") == sum(not one.helps for one in watched.prescription.remedies) > 1
    assert "watch(verbose=True)" not in file.getvalue()


def test_a_fault_in_what_to_do_costs_that_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("headrace.doctor.causes.prescribe", fail)
    with headrace.doctor.watch() as watched:
        train()
    assert watched.prescription is None
    out, err = capsys.readouterr()
    assert "data wait" in out
    assert "no remedies" in err


@pytest.mark.long
def test_sees_workers() -> None:
    with headrace.doctor.watch(show=False) as watched:
        train(workers=1)
    assert watched.session is not None
    (maker,) = watched.session.makers
    assert maker.worker == 0
    assert sorted(maker.batches.index) == list(range(BATCHES))


@pytest.mark.long
def test_sees_workers_of_a_fork_server_each_time() -> None:
    """The server would outlive the first watch, with its folder."""
    for _ in range(2):
        with headrace.doctor.watch(show=False) as watched:
            train(workers=1, start="forkserver")
        assert watched.session is not None
        assert [sorted(maker.batches.index) for maker in watched.session.makers] == [list(range(BATCHES))]


def test_a_fork_server_ends_unless_it_has_workers() -> None:
    """What the test above needs, without torch in the server."""
    forkserver.ensure_running()
    server = forkserver._forkserver
    worker = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(DEADLINE_S,))
    worker.start()
    try:
        end_fork_server()
        assert server._forkserver_pid is not None
    finally:
        worker.kill()
        worker.join()
        worker.close()
    end_fork_server()
    assert server._forkserver_pid is None


@pytest.mark.long
def test_a_second_one_starts_afresh() -> None:
    for _ in range(2):
        with headrace.doctor.watch(show=False) as watched:
            train()
        assert watched.session is not None
        assert [len(trainer.steps.number) for trainer in watched.session.trainers] == [BATCHES]


def test_one_within_another_gives_what_there_is_so_far() -> None:
    with headrace.doctor.watch(show=False) as outer:
        train()
        with headrace.doctor.watch(show=False) as inner:
            train()
        train()
    steps = [len(one.session.trainers[0].steps.number) for one in (inner, outer) if one.session is not None]
    assert steps == [2 * BATCHES, 3 * BATCHES]


def test_exceptions_of_the_body_pass_through_and_the_report_comes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), headrace.doctor.watch() as watched:
        train_until_it_fails()
    assert watched.session is not None
    assert watched.session.outcome.why == "failed"
    assert "data wait" in capsys.readouterr().out


def test_an_interrupted_cell_still_reports() -> None:
    with pytest.raises(KeyboardInterrupt), headrace.doctor.watch(show=False) as watched:
        train_until_interrupted()
    assert watched.session is not None
    assert watched.session.outcome.why == "interrupted"


def test_a_body_that_trains_nothing() -> None:
    with headrace.doctor.watch(show=False) as watched:
        pass
    assert watched.diagnosis is not None
    assert watched.diagnosis.wait_share is None


@pytest.mark.long
def test_a_fault_of_the_doctors_is_named_and_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("headrace.doctor.session.read_session", fail)
    with headrace.doctor.watch() as watched:
        train()
    assert watched.diagnosis is None
    assert "report failed" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError), headrace.doctor.watch():
        raise ZeroDivisionError


def test_a_probe_that_cannot_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with headrace.doctor.watch(show=False):
        pass

    def fail(folder: str) -> None:
        raise OSError("no")

    monkeypatch.setattr(sys.modules[PROBE], "start", fail)
    with pytest.raises(OSError, match="no"), headrace.doctor.watch():
        raise AssertionError("the body must not run")
    assert capsys.readouterr() == ("", "")
