"""Which passes over a DataLoader feed an evaluation: the rule alone."""

from __future__ import annotations

import pytest

from headrace.doctor.probe.training.steps import BEGUN, ENDED, GOT, PassEvent, evaluation_intervals, evaluation_passes


def _events(script: str) -> tuple[list[PassEvent], list[int]]:
    """`<1` pass 1 begins, `1` a batch of it, `-1` one without autograd, `>1` it ends, `b` a backward pass: one after
    the other, and each takes 10."""
    events, backwards = [], []
    for position, word in enumerate(script.split()):
        start, end = position * 10, position * 10 + 10
        if word == "b":
            backwards.append(start)
            continue
        what = {"<": BEGUN, ">": ENDED}.get(word[0], GOT)
        events.append(PassEvent(what, int(word.lstrip("<>-")), start, end, not word.startswith("-")))
    return events, backwards


@pytest.mark.parametrize(
    ("script", "before", "evaluated"),
    [
        ("<1 1 b", set(), set()),  # the first step of an epoch
        ("1 b", {1}, set()),
        ("1 1 1 b", {1}, set()),  # accumulation whose batches are fetched first
        ("<2 -2 -2 -2 >2 1 b", {1}, {2}),  # an evaluation without autograd
        ("<2 2 2 >2 1 b", {1}, {2}),  # one that forgot to switch it off
        ("<2 2 2 >2 b", {1}, {2}),  # the same with a fetcher one ahead, which has this step's batch already
        ("<2 -2 -2 1 b", {1}, {2}),  # one that was broken off
        ("<1 1 >1 b", set(), set()),  # an epoch of one batch and a fetcher that is one ahead
        ("<2 2 >2 <1 1 b", set(), {2}),  # an evaluation before the first epoch
        ("1 2 b", {1, 2}, set()),  # two loaders feed each step
        ("<1 1 <2 2 b", set(), set()),  # and begin
        ("1 <2 2 b", {1}, set()),  # the second begins anew
        ("-1 b", {1}, set()),  # a loop that fetches without autograd goes on training
        ("<1 -1 b", set(), set()),  # and it was there from the first step
    ],
)
def test_which_passes_are_evaluations(script: str, before: set[int], evaluated: set[int]) -> None:
    events, backwards = _events(script)
    assert evaluation_passes(events, backwards, before) == evaluated


@pytest.mark.parametrize(
    ("script", "intervals"),
    [
        ("<2 -2 -2 >2 1 b", [(0, 40)]),
        ("1 <2 -2 -2 >2 b", [(10, 50)]),
        ("<2 -2 -2 1 b", [(0, 30)]),  # broken off: until training goes on
        ("<2 -2 b", [(0, 20)]),
        ("<2 -2 >2 <1 1 <3 -3 >3 b", [(0, 30), (50, 80)]),
    ],
)
def test_when_an_evaluation_was(script: str, intervals: list[tuple[int, int]]) -> None:
    events, backwards = _events(script)
    assert evaluation_intervals(events, {2, 3}, backwards, 1000) == intervals


def test_an_evaluation_ends_with_its_step_at_the_latest() -> None:
    events, _ = _events("<2 -2")
    assert evaluation_intervals(events, {2}, [], 33) == [(0, 33)]
