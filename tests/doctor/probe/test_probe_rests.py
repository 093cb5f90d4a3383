"""Runs that are only observed are let alone for blocks of steps where observing them costs too much."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from probed import merged
from probing import notes, probed, records
from training_loops import Loop, loader

from headrace.doctor.probe import overhead
from headrace.doctor.probe.evidence_file import BLOCK, is_kept
from headrace.doctor.probe.overhead import AIM, ALWAYS_NS, PauseSchedule
from headrace.doctor.probe.training.closed_steps import PausedTraining

MS = 1_000_000


def observed(chosen: PauseSchedule, *, step_ns: int, cost_ns: int, number: int) -> int:
    """A block of equal steps, and then how many to let pass from `number` on."""
    for _ in range(BLOCK):
        chosen.observed(step_ns)
        chosen.spent(cost_ns)
    return chosen.after(number)


def share_observed(*, step_ns: int, cost_ns: int, blocks: int = 8000) -> float:
    """Of a long run's blocks."""
    chosen = PauseSchedule()
    number = seen = 0
    while number < blocks * BLOCK:
        seen += 1
        number += BLOCK
        number += observed(chosen, step_ns=step_ns, cost_ns=cost_ns, number=number)
    return seen * BLOCK / number


@pytest.mark.parametrize(("step_ms", "cost_us"), [(1, 19), (5, 19), (20, 39), (50, 99), (1000, 1999)])
def test_where_observing_costs_little_all_steps_are_observed(step_ms: int, cost_us: int) -> None:
    assert share_observed(step_ns=step_ms * MS, cost_ns=cost_us * 1000, blocks=50) == 1


@pytest.mark.parametrize(("step_ms", "cost_us"), [(1, 160), (5, 400), (20, 341), (20, 3000), (100, 1200)])
def test_as_many_are_let_pass_as_keep_the_cost_within_its_bound(step_ms: int, cost_us: int) -> None:
    bound = max(ALWAYS_NS, 0.01 * step_ms * MS)
    mean = cost_us * 1000 * share_observed(step_ns=step_ms * MS, cost_ns=cost_us * 1000)
    assert bound * AIM / 2.1 < mean < bound * AIM * 1.05


def test_a_rest_counts_steps_of_several_optimizers() -> None:
    for stepped, passed in enumerate([0, 0, 1, 1, 2, 2, 3]):
        state: Any = mock.MagicMock()
        state.steps.number, state.steps.optimizers = 64, 2
        pauses = PausedTraining(state, lambda: 0)
        with mock.patch.object(pauses, "_after", return_value=3):
            pauses.begin_if_due(0)
        for _ in range(stepped):
            pauses.optimizer_stepped()
        pauses.end()
        ((rest,),) = [call.args for call in state.evidence.write.call_args_list]
        assert (rest[0], rest[1], rest[4]) == ("rest", 64, passed)
        state.steps.resume.assert_called_once_with(64 + passed, mock.ANY)


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """So costly that one block in four is observed."""
    monkeypatch.setattr(overhead, "MOST_HALVINGS", 2)
    monkeypatch.setattr(overhead, "AIM", 0.0)


COUNT = 12 * BLOCK


def kept() -> list[int]:
    """The steps that are observed of as many."""
    return [number for number in range(COUNT) if number < BLOCK or is_kept(number // BLOCK, 2)]


@pytest.mark.usefixtures("costly")
def test_steps_are_observed_or_let_pass_and_none_is_forgotten(tmp_path: Path) -> None:
    with probed(tmp_path):
        Loop().train(loader(4 * COUNT))
    steps, gets, passed = records(tmp_path, "step"), records(tmp_path, "get"), records(tmp_path, "rest")
    assert [step[1] for step in steps] == kept()
    assert [get[2] for get in gets] == kept()
    assert sum(rest[4] for rest in passed) + len(steps) == COUNT
    for number, _, end, count, _ in (rest[1:] for rest in passed):
        following = [step for step in steps if step[1] == number + count]
        assert all(step[2] == end for step in following)
    made = [batch[2] for batch in records(tmp_path, "batch")]
    assert made == kept()


@pytest.mark.usefixtures("costly")
@pytest.mark.long
def test_workers_batches_are_those_of_the_steps_observed(tmp_path: Path) -> None:
    with probed(tmp_path):
        Loop().train(loader(4 * COUNT, num_workers=2))
    gets = records(tmp_path, "get")
    assert [get[2] for get in gets] == kept()
    assert all(get[5] is not None for get in gets)  # when it arrived, be it in a rest


@pytest.mark.usefixtures("costly")
def test_a_run_that_ends_in_a_rest_says_how_many_steps_it_was_let(tmp_path: Path) -> None:
    with probed(tmp_path):
        Loop().train(loader(4 * (2 * BLOCK + 5)))
    steps, (rest,) = records(tmp_path, "step"), records(tmp_path, "rest")
    assert (len(steps), rest[1], rest[4]) == (2 * BLOCK, 2 * BLOCK, 5)
    (trainer,) = merged(tmp_path).trainers
    assert [(one.first, one.steps) for one in trainer.rests] == [(2 * BLOCK, 5)]


@pytest.mark.usefixtures("costly")
@pytest.mark.long
def test_a_run_that_is_measured_has_no_rests(tmp_path: Path) -> None:
    with probed(tmp_path, observe=False, steps=10_000):
        Loop().train(loader(4 * 3 * BLOCK))
    assert len(records(tmp_path, "step")) == 3 * BLOCK


@pytest.mark.usefixtures("costly")
def test_batches_fetched_in_another_thread_are_followed_throughout(tmp_path: Path) -> None:
    batches: list[Any] = []

    def fetch() -> None:
        batches.extend(loader(4 * 3 * BLOCK))

    with probed(tmp_path):
        thread = threading.Thread(target=fetch)
        thread.start()
        thread.join()
        Loop().train(batches)
    assert "thread" in notes(tmp_path)
    assert len(records(tmp_path, "step")) == 3 * BLOCK
