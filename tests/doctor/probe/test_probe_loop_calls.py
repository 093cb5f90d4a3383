"""Calls of the loop: where the model is called, and what is work on data before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import notes, probed, records
from training_loops import Loop, loader

from headrace.doctor.probe.training import training as training_module
from headrace.doctor.probe.training.steps import UNSOURCED, WORK

MS = 1_000_000


class Clock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.ns = 1_000 * MS

    def __call__(self) -> int:
        return self.ns

    def work(self, ms: int) -> None:
        self.ns += ms * MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(training_module, "now", made)
    return made


class Transform(torch.nn.Module):
    """A module without parameters, as those of torchvision's v2 and kornia are."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, batch: Any) -> Any:
        self.clock.work(5)
        return batch


class Model(torch.nn.Module):
    """Takes 7 ms before it calls the module in it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.inner = clock, torch.nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.clock.work(7)
        return self.inner(inputs)


def work_of(folder: Path) -> list[list[tuple[str, int]]]:
    """Kind and microseconds of each step's work."""
    steps = records(folder, "step")
    return [[(kind, us) for kind, _, us in step[4] if kind in (WORK, UNSOURCED)] for step in steps]


def steps(clock: Clock, before: Callable[[Any], Any], batches: Any) -> None:
    loop = Loop()
    model = Model(clock)
    loop.model = model
    for batch in batches:
        loop.step(before(batch))


def test_what_is_done_before_the_model_is_called_is_work_on_data(tmp_path: Path, clock: Clock) -> None:
    transform = Transform(clock)

    def before(batch: Any) -> Any:
        clock.work(3)
        return transform(batch)

    with probed(tmp_path):
        steps(clock, before, loader(12))
    assert work_of(tmp_path) == [[(WORK, 8_000)]] * 3


def test_batches_that_are_made_of_others_are_work_until_the_next_is_asked_for(tmp_path: Path, clock: Clock) -> None:
    def rebatched() -> Iterator[Any]:
        before: list[Any] = []
        for batch in loader(24):
            clock.work(2)
            before.append(batch)
            if len(before) == 2:
                yield tuple(map(torch.cat, zip(*before, strict=True)))
                before.clear()

    with probed(tmp_path):
        steps(clock, lambda batch: batch, rebatched())
    assert work_of(tmp_path) == [[(WORK, 2_000), (WORK, 2_000)]] * 3


def test_steps_that_nothing_known_feeds_are_unseen_until_the_model_is_called(tmp_path: Path, clock: Clock) -> None:
    def batches() -> Iterator[Any]:
        for _ in range(4):
            clock.work(9)
            yield torch.randn(4, 8), torch.zeros(4, 1)

    running = batches()
    with probed(tmp_path):
        steps(clock, lambda batch: batch, running)
    assert work_of(tmp_path) == [[], *[[(UNSOURCED, 9_000)]] * 3]


def test_the_function_that_modules_go_through_is_left_as_it_was(tmp_path: Path) -> None:
    function = torch.nn.Module.__call__
    code, names = function.__code__, set(function.__globals__)
    seen = []
    with probed(tmp_path):
        for _ in loader(8):
            seen.append(torch.nn.Module.__call__.__code__ is code)
            Loop().step((torch.randn(4, 8), torch.zeros(4, 1)))
            assert function.__code__ is code
    assert seen == [False, False]
    assert torch.nn.Module.__call__ is function
    assert function.__code__ is code
    assert set(function.__globals__) == names


def test_a_torch_whose_modules_are_called_otherwise_is_said_not_to_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = torch.nn.Module.__call__

    def call(self: Any, *args: Any) -> Any:
        return original(self, *args)

    monkeypatch.setattr(torch.nn.Module, "__call__", call)
    with probed(tmp_path):
        Loop().train(loader(8))
    assert "forward" in notes(tmp_path)["not-known"]
    assert len(records(tmp_path, "step")) == 2
