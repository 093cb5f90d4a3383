"""Where steps begin and end, and what belongs to each: the rules alone, fed with readings of no clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.doctor.probe.training.steps import (
    BACKWARD,
    BEGUN,
    CLOSURE,
    COPY,
    ENDED,
    EVALUATION,
    GOT,
    OPTIMIZER,
    OptimizerStep,
    PassEvent,
    StepTimeline,
    evaluation_intervals,
    evaluation_passes,
)


class Batch(NamedTuple):
    """A batch, as far as the timeline asks, with the act that it was. Each loader has one pass."""

    pass_: int
    start: int
    end: int
    act: str = ""

    @property
    def loader(self) -> int:
        return self.pass_


def got(steps: StepTimeline, batch: Any, with_grad: bool = True) -> None:
    steps.record_batch(batch, with_grad)


class Script:
    """Runs a training script of one-letter acts through `Steps`; each act takes 10, and 1 passes between two.

    `g` a batch of pass 0, `f` one of pass 2, `v` one of pass 1 without autograd, `b` backward, `o` and `p` two
    optimizers, `h` a copy, `s` a step that the scaler skipped.
    """

    def __init__(self) -> None:
        self.steps = StepTimeline()
        self.now = 0
        self.closed: list[OptimizerStep] = []

    def run(self, acts: str) -> Script:
        for act in acts:
            self.act(act)
        return self

    def act(self, act: str) -> None:
        start, end = self.now + 1, self.now + 11
        if act in "gvf":
            number = "gvf".index(act)
            self.close(self.steps.fetching(number))
            got(self.steps, Batch(number, start, end, act), act != "v")
        elif act in "bh":
            self.steps.enter({"b": BACKWARD, "h": COPY}[act], start)
            self.steps.leave(end)
        elif act in "op":
            self.close(self.steps.optimizer_begins(act, start))
            self.steps.optimizer_ends(act, end)
        elif act == "s":
            self.steps.skipped("o", start, end)
        self.now = end

    def close(self, step: OptimizerStep | None) -> None:
        self.closed += [] if step is None else [step]

    def finish(self) -> list[OptimizerStep]:
        self.close(self.steps.finish())
        return self.closed

    def shapes(self) -> list[str]:
        """Each step's batches and spans, in order of start."""
        return [_shape(step) for step in self.finish()]


def _shape(step: OptimizerStep) -> str:
    acts = [(batch.start, batch.act) for batch in _batches(step)] + [(start, kind) for kind, start, _ in step.spans]
    return "".join(act for _, act in sorted(acts))


def _batches(step: OptimizerStep) -> list[Any]:
    return list(step.gets)


@pytest.mark.parametrize(
    ("acts", "steps"),
    [
        ("gbogbogbo", ["gbo", "gbo", "gbo"]),
        ("gbgbgbogbo", ["gbgbgbo", "gbo"]),  # accumulation
        ("gbobpgbobp", ["gbobo", "gbobo"]),  # two optimizers a step
        ("gbobobogbobobo", ["gbobobo", "gbobobo"]),  # an optimizer that steps several times on one batch
        ("gbogbobpgbo", ["gbo", "gbobo", "gbo"]),  # a second optimizer in some iterations
        (3 * "gbofbo", ["gbo", "fbo", "gbofbo", "gbofbo"]),  # two loaders an iteration, once both are known
        ("gfbogbofbogbofgbo", ["gfbo", "gbofbo", "gbo", "fgbo"]),  # a batch after the last optimizer
        ("bobobo", ["bo", "bo", "bo"]),  # no loader
        ("gbo" + 99 * "bo", ["g" + 24 * "bo"] + 76 * ["bo"]),  # a batch before a loop without a loader
        ("ggbogbogbobo", ["ggbo", "gbo", "gbobo"]),  # a fetcher that is one ahead
        ("gbsgbo", ["gbs", "gbo"]),  # the scaler skipped one
        ("ghbogvvvgbo", ["ghbo", "gevvvgbo"]),  # an evaluation
        ("gb", []),  # it never ends
    ],
)
def test_a_step_is_an_iteration_that_steps_an_optimizer(acts: str, steps: list[str]) -> None:
    shapes = Script().run(acts).shapes()
    assert [sorted(shape) for shape in shapes] == [sorted(shape) for shape in steps]


def test_a_closure_is_not_the_optimizers_own_time() -> None:
    steps = StepTimeline()
    steps.optimizer_begins("lbfgs", 0)
    for start in (10, 50):
        steps.enter(CLOSURE, start)
        steps.enter(BACKWARD, start + 5)
        steps.leave(start + 15)
        steps.leave(start + 20)
    steps.optimizer_ends("lbfgs", 100)
    step = steps.finish()
    assert step is not None
    stepped = [(OPTIMIZER, 0, 10), (BACKWARD, 15, 25), (OPTIMIZER, 30, 50)]
    assert step.spans == [*stepped, (BACKWARD, 55, 65), (OPTIMIZER, 70, 100)]


def test_optimizers_that_step_inside_a_backward_pass_end_the_step_with_it() -> None:
    steps = StepTimeline()
    for origin in (0, 100):
        assert (steps.fetching() is not None) == (origin > 0)
        got(steps, Batch(0, origin, origin + 10))
        steps.enter(BACKWARD, origin + 10)
        for parameter in range(3):
            assert steps.optimizer_begins(parameter, origin + 20 + parameter * 10) is None
            steps.optimizer_ends(parameter, origin + 25 + parameter * 10)
        steps.leave(origin + 80)
    step = steps.finish()
    assert step is not None
    assert (step.number, step.start, step.end) == (1, 80, 180)
    assert sum(end - start for kind, start, end in step.spans if kind == OPTIMIZER) == 15
    assert sum(end - start for kind, start, end in step.spans if kind == BACKWARD) == 55


@pytest.mark.parametrize("optimizers", ["op", "oo"])
def test_a_step_that_is_whole_has_as_many_optimizer_steps_as_the_one_before(optimizers: str) -> None:
    script = Script().run(f"gb{optimizers}").run("gbo")
    assert not script.steps.is_whole()
    script.run(optimizers[1])
    assert script.steps.is_whole()


@given(st.lists(st.tuples(st.sampled_from("bhc)"), st.integers(0, 5)), max_size=60))
def test_spans_never_overlap_and_lie_within_their_step(acts: list[tuple[str, int]]) -> None:
    steps, now, depth, covered = StepTimeline(), 0, 0, 0
    steps.begin(0)
    for act, wait in acts:
        covered += wait if depth else 0
        now += wait
        if act == ")" and depth:
            steps.leave(now)
            depth -= 1
        elif act != ")":
            steps.enter(act, now)
            depth += 1
    for _ in range(depth):
        steps.leave(now)
    steps.optimizer_begins("o", now)
    steps.optimizer_ends("o", now)
    step = steps.finish()
    assert step is not None
    assert all(before[2] <= after[1] for before, after in _pairs(sorted(step.spans, key=lambda span: span[1])))
    assert sum(end - start for _, start, end in step.spans) == covered
    assert all(0 <= start <= end <= now for _, start, end in step.spans)


def test_an_evaluation_is_set_apart_with_all_that_happens_in_it() -> None:
    script = Script().run("gbo")
    script.close(script.steps.fetching())
    script.steps.note(PassEvent(BEGUN, 1, 34, 35, False))
    script.now = 35
    script.run("vhvh")
    script.steps.note(PassEvent(ENDED, 1, script.now, script.now + 5, False))
    end = script.now + 5
    script.now += 5
    script.run("gbo")
    step = script.finish()[1]
    assert step.evaluated == {1}
    assert [span for span in step.spans if span[0] == EVALUATION] == [(EVALUATION, 34, end)]
    assert COPY not in {kind for kind, _, _ in step.spans}
    assert script.steps.gets == 1


def _pairs(spans: list[tuple[str, int, int]]) -> Iterator[tuple[tuple[str, int, int], tuple[str, int, int]]]:
    return itertools.pairwise(spans)


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
