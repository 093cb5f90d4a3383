"""What the probe writes of batches, loaders and calls of the loop, in this very process and without a device."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import kinds, notes, probed, records, spans
from torch.utils.data import DataLoader
from training_loops import Loop, loader, pairs

from headrace.doctor.probe.training import training as training_module
from headrace.doctor.probe.training.steps import UNSOURCED, WORK

HERE = __file__


def _line() -> int:
    """Of the caller."""
    return sys._getframe(1).f_lineno


def test_each_step_has_its_batches_its_backward_pass_and_its_optimizer(tmp_path: Path) -> None:
    with probed(tmp_path):
        Loop().train(loader(24))
    steps, gets = records(tmp_path, "step"), records(tmp_path, "get")
    assert [step[1] for step in steps] == list(range(6))
    assert {kinds(step) for step in steps} == {"bo"}
    assert [get[1:3] for get in gets] == [[0, index] for index in range(6)]
    assert all(before[3] == after[2] for before, after in itertools.pairwise(steps))
    for step, get in zip(steps, gets, strict=True):
        backward, optimizer = spans(step)
        assert step[2] <= get[3] <= get[3] + get[4] <= step[2] + backward[1]
        assert backward[1] + backward[2] <= optimizer[1] + 1
        assert abs(step[2] + optimizer[1] + optimizer[2] - step[3]) <= 2
        assert step[5] > 0


def _logged(batches: Any) -> Any:
    """Return batches whose iteration is a logger's line, not the one that makes the loader."""

    class Logged:
        def __iter__(self) -> Any:
            yield from batches

    return Logged()


def test_a_loader_is_described_where_the_user_iterates_it(tmp_path: Path) -> None:
    with probed(tmp_path):
        made, batches = _line(), _logged(DataLoader(pairs(22), batch_size=4))
        for _ in range(2):
            line = _logged.__code__.co_firstlineno + 5
            for _ in batches:
                pass
    (described,) = records(tmp_path, "loader")
    assert described[1] == 0
    facts = described[3]
    assert facts.pop("described")["dataset"]["class"] == "torch.utils.data.dataset.TensorDataset"
    assert (facts.pop("file"), facts.pop("line")) == (HERE, line)
    assert (facts.pop("made"), facts.pop("ordinal")) == (f"{HERE}:{made}", 1)
    assert facts == {
        "num_workers": 0,
        "batch_size": 4,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory": False,
        "in_order": True,
        "iterable": False,
        "start_method": None,
        "dataset": "torch.utils.data.dataset.TensorDataset",
        "length": 6,
    }
    passes = records(tmp_path, "pass")
    assert [(one[1], one[2], one[5], one[6]) for one in passes] == [(0, 0, 0, [os.getpid()]), (1, 0, 1, [os.getpid()])]
    assert [last[1] for last in records(tmp_path, "last")] == [0, 1]


@pytest.mark.skipif("in_order" not in signature(DataLoader).parameters, reason="this torch hands out in order only")
@pytest.mark.long
def test_batches_out_of_order_keep_their_own_index(tmp_path: Path) -> None:
    with probed(tmp_path):
        for _ in DataLoader(range(12), num_workers=2, in_order=False):  # type: ignore[arg-type]
            pass
    gets = records(tmp_path, "get")
    assert sorted(get[2] for get in gets) == list(range(12))
    assert None not in [get[5] for get in gets]


def test_observation_of_the_order_has_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.doctor.probe.training.state.OBSERVED_STEPS", 5)
    with probed(tmp_path, orders=True):
        Loop().train(loader(4 * 40))
    assert [row[1] for row in records(tmp_path, "step")] == list(range(40))
    assert len(records(tmp_path, "drawn")) == 40


@pytest.mark.parametrize("workers", [0, 2])
def test_observation_ends_after_bounded_steps(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.doctor.probe.training.state.OBSERVED_STEPS", 5)
    with probed(tmp_path):
        Loop().train(loader(4 * 40, num_workers=workers))
    (settled,) = [fact[2] for fact in records(tmp_path, "facts") if "warmup_steps" in fact[2]]
    steps = [step[1] for step in records(tmp_path, "step")]
    assert steps == list(range(settled["warmup_steps"] + 5))
    assert [get[2] for get in records(tmp_path, "get")] == steps
    assert len(records(tmp_path, "batch")) == (40 if workers else len(steps))
    assert len(records(tmp_path, "end")) == 1 + workers
    assert workers or not notes(tmp_path)


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


def test_a_torch_whose_modules_are_called_otherwise_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.nn.Module.__call__

    def call(self: Any, *args: Any) -> Any:
        return original(self, *args)

    monkeypatch.setattr(torch.nn.Module, "__call__", call)
    with probed(tmp_path):
        Loop().train(loader(8))
    assert "forward" in notes(tmp_path)["not-known"]
    assert len(records(tmp_path, "step")) == 2
