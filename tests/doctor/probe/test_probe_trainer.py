"""What the probe writes of batches and loaders, in this very process and without a device."""

from __future__ import annotations

import itertools
import os
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from probing import kinds, notes, probed, records, spans
from torch.utils.data import DataLoader
from training_loops import Loop, loader, pairs

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


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.long
def test_batches_of_workers_tell_when_they_arrived(tmp_path: Path, persistent: bool) -> None:
    batches = loader(24, num_workers=2, persistent_workers=persistent)
    with probed(tmp_path):
        for _ in range(2):
            Loop().train(batches)
    del batches
    passes, gets = records(tmp_path, "pass"), records(tmp_path, "get")
    assert [one[5] for one in passes] == ([0, 1] if persistent else [0, 0])
    assert len({tuple(one[6]) for one in passes}) == (1 if persistent else 2)
    assert os.getpid() not in passes[0][6]
    assert len(passes[0][6]) == 2
    assert [get[1:3] for get in gets] == [[pass_, index] for pass_ in (0, 1) for index in range(6)]
    for _, _, _, start, duration, arrived, unpickle, pin_start, pin, _, _, unpickle_cpu in gets:
        assert 0 <= unpickle_cpu <= unpickle
        assert arrived <= start + duration + 1
        assert unpickle >= 0
        assert (pin_start, pin) == (None, None)
    (described,) = records(tmp_path, "loader")
    assert (described[3]["num_workers"], described[3]["start_method"]) == (2, "fork")


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
def test_observation_ends_after_a_bounded_number_of_steps(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
