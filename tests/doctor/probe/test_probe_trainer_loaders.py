"""Steps of training loops as people write them: accumulation, several optimizers, closures, evaluations."""

from __future__ import annotations

import itertools
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import kinds, notes, probed, records, settings, spans
from torch.utils.data import DataLoader
from training_loops import Loop, loader, pairs

from headrace.doctor.attach.command import probe_environment


def test_accumulated_batches_belong_to_one_step(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.loss(batch).backward()
            if number % 3 == 2:
                loop.optimizer.step()
    steps = records(tmp_path, "step")
    assert [kinds(step) for step in steps] == ["bbbo", "bbbo"]
    assert [sum(step[2] <= get[3] < step[3] for get in records(tmp_path, "get")) for step in steps] == [3, 3]


def each_loops(loops: list[Loop], batch: Any, _: Callable[[], Any]) -> None:
    for loop in loops:
        loop.step(batch)


def a_loader_each(loops: list[Loop], batch: Any, further: Callable[[], Any]) -> None:
    loops[0].step(batch)
    for loop in loops[1:]:
        loop.step(further())


@pytest.mark.parametrize("work", [each_loops, a_loader_each])
@pytest.mark.parametrize(("models", "times"), [(2, 1), (3, 1), (1, 3)])
def test_an_iteration_with_several_optimizer_steps_is_one_step(
    tmp_path: Path, models: int, times: int, work: Callable[[list[Loop], Any, Callable[[], Any]], None]
) -> None:
    loops = [Loop() for _ in range(models)] * times
    with probed(tmp_path):
        others = [iter(loader(36)) for _ in loops[1:]]
        turns = itertools.cycle(others)
        for batch in loader(36):
            work(loops, batch, lambda: next(next(turns)))
    steps = [kinds(step) for step in records(tmp_path, "step")]
    first = len(loops) if work is a_loader_each else 1  # a loader is known as a further one from its second batch on
    assert steps[first:] == [len(loops) * "bo"] * 8
    assert "optimizers" in notes(tmp_path)


def test_a_step_that_the_scaler_skips_counts(tmp_path: Path) -> None:
    loop = Loop()
    scaler = torch.amp.GradScaler("cpu")
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.optimizer.zero_grad()
            loss = loop.loss(batch)
            scaler.scale(loss * (float("inf") if number == 2 else 1.0)).backward()
            scaler.step(loop.optimizer)
            scaler.update()
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo", "bo", "bs", "bo", "bo", "bo"]
    assert "scaler" in notes(tmp_path)


def test_a_closure_runs_within_the_optimizer_and_is_not_its_time(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    with probed(tmp_path):
        for inputs, targets in loader(8):

            def closure(inputs: Any = inputs, targets: Any = targets) -> Any:
                optimizer.zero_grad()
                loss = (model(inputs) - targets).square().mean()
                loss.backward()
                return loss.detach()  # which LBFGS makes a number of, and some releases warn of

            optimizer.step(closure)
    steps = records(tmp_path, "step")
    assert len(steps) == 2
    assert kinds(steps[0]).startswith("obo")
    assert len(records(tmp_path, "get")) == 2


def test_an_evaluation_between_steps_is_no_wait_for_data(tmp_path: Path) -> None:
    loop = Loop()
    held_out = loader(20)
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.step(batch)
            if number == 2:
                with torch.no_grad():
                    for other in held_out:
                        loop.loss(other)
    steps = records(tmp_path, "step")
    assert [kinds(step) for step in steps] == ["bo", "bo", "bo", "ebo", "bo", "bo"]
    assert len(records(tmp_path, "get")) == 6
    evaluated = records(tmp_path, "fetch")
    assert len(evaluated) == 5
    start = steps[3][2] + spans(steps[3])[0][1]
    assert all(start <= fetch[3] <= start + spans(steps[3])[0][2] for fetch in evaluated)


def test_batches_that_a_thread_fetches_are_waited_for_only_where_it_hands_them_over(tmp_path: Path) -> None:
    loop = Loop()
    handed: queue.Queue[Any] = queue.Queue(2)

    def fetch() -> None:
        for batch in loader(24):
            handed.put(batch)
        handed.put(None)

    with probed(tmp_path):
        thread = threading.Thread(target=fetch, name="ahead")
        thread.start()
        while (batch := handed.get()) is not None:
            loop.step(batch)
        thread.join()
    gets = [get[2] for get in records(tmp_path, "get")]
    others = [fetch[2] for fetch in records(tmp_path, "fetch")]
    assert sorted(gets + others) == list(range(6))
    assert len(gets) >= 5  # the first batch may be there before the queue is known to carry any
    assert len(records(tmp_path, "step")) == 6
    assert "ahead" in notes(tmp_path)["thread"]


def test_a_device_prefetcher_hands_over_what_its_thread_fetched(tmp_path: Path) -> None:
    from headrace import DevicePrefetcher

    with probed(tmp_path):
        Loop().train(DevicePrefetcher(loader(24), "cpu"))
    assert [get[1:3] for get in records(tmp_path, "get")] == [[0, index] for index in range(6)]
    assert records(tmp_path, "fetch") == []
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo"] * 6


def test_training_in_a_thread_is_followed_there(tmp_path: Path) -> None:
    with probed(tmp_path):
        thread = threading.Thread(target=lambda: Loop().train(loader(24)))
        thread.start()
        thread.join()
    steps = records(tmp_path, "step")
    assert len(steps) >= 5
    assert len(records(tmp_path, "get")) >= 5
    assert [kinds(step) for step in steps[1:]] == ["bo"] * (len(steps) - 1)


def test_a_loader_that_a_dataset_reads_is_the_datasets_own(tmp_path: Path) -> None:
    class Outer(torch.utils.data.Dataset[float]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> float:
            return float(sum(len(inputs) for inputs, _ in loader(8)))

    with probed(tmp_path):
        for _ in DataLoader(Outer()):
            pass
    assert len(records(tmp_path, "get")) == 3
    assert len(records(tmp_path, "pass")) == 1


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own, with this torch
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_torchdata_are_seen_like_torchs_own(tmp_path: Path, workers: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    with probed(tmp_path):
        Loop().train(loader(8))
        Loop().train(StatefulDataLoader(pairs(24), batch_size=4, num_workers=workers))
    assert [described[1] for described in records(tmp_path, "loader")] == [0, 1]
    gets = [get for get in records(tmp_path, "get") if get[1] == 1]
    assert [get[2] for get in gets] == list(range(6))
    assert all((get[5] is None) == (workers == 0) for get in gets)
    assert len(records(tmp_path, "step")) == 8


class Endless:
    """A batch sampler that begins anew for ever."""

    def __init__(self, batches: Any) -> None:
        self.sampler = batches

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class KeepingLoader(DataLoader[Any]):
    """One iterator for all passes, as Ultralytics' loader keeps it: made when the first pass begins, or at once."""

    def __init__(self, *arguments: Any, at_once: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
        self.iterator: Any = super().__iter__() if at_once else None

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr]

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.iterator)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.one_in(4)
def test_a_loader_that_keeps_its_iterator_is_seen(tmp_path: Path, workers: int, at_once: bool) -> None:
    with probed(tmp_path):
        kept = KeepingLoader(pairs(24), batch_size=4, num_workers=workers, at_once=at_once)
        for _ in range(2):
            Loop().train(kept)
        kept.iterator = None  # its workers end
    assert [one[1:3] for one in records(tmp_path, "pass")] == [[0, 0]]
    assert [get[1:3] for get in records(tmp_path, "get")] == [[0, index] for index in range(12)]
    made = {batch[2] for batch in records(tmp_path, "batch")}
    assert made >= set(range(12))
    assert "hook-off" not in notes(tmp_path)


SCRIPT = Path(__file__).parents[1] / "framework_loops.py"


def _runs(folder: Path, framework: str) -> None:
    settings(folder).write()
    paths = os.pathsep.join([*filter(None, sys.path), str(SCRIPT.parent)])
    env = probe_environment(folder, {**os.environ, "PYTHONPATH": paths})
    run = subprocess.run([sys.executable, str(SCRIPT), framework], env=env, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stderr


def _steps(folder: Path) -> list[str]:
    """Each step's spans, and the batches that training waited for up to its end."""
    steps, gets = records(folder, "step"), records(folder, "get")
    assert "hook-off" not in notes(folder)
    return [f"{kinds(step)} {sum(step[2] <= get[3] < step[3] for get in gets)}" for step in steps]


def _evaluated(folder: Path) -> int:
    return len(records(folder, "fetch"))


@pytest.mark.long
def test_accelerate_fetches_one_batch_ahead(tmp_path: Path) -> None:
    _runs(tmp_path, "accelerate")
    assert _steps(tmp_path) == ["bbo 3", "bbo 2", "bbo 1", *["ebbo 3", "bbo 2", "bbo 1"] * 3]
    assert _evaluated(tmp_path) == 3 * 2  # those of the last evaluation belong to no step
    assert records(tmp_path, "loader")[0][3]["file"] == str(SCRIPT)


@pytest.mark.long
def test_lightning_runs_forward_and_backward_within_the_optimizer(tmp_path: Path) -> None:
    _runs(tmp_path, "lightning")
    assert _steps(tmp_path) == ["ebobo 2", "bobo 2", "bobo 2"] * 2
    assert _evaluated(tmp_path) == 2 * 2  # before the first step, and after the first epoch


@pytest.mark.long
def test_transformers_fetches_a_steps_batches_together(tmp_path: Path) -> None:
    _runs(tmp_path, "transformers")
    assert _steps(tmp_path) == ["bbo 3", "bbo 2", "bbo 1", "ebbo 3", "bbo 2", "bbo 1"]
    assert _evaluated(tmp_path) == 2
