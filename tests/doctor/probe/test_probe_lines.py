"""Where the user's code spends its time, by line, and the stack of a batch that hangs."""

from __future__ import annotations

import json
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from processes import run_python

from headrace.doctor.probe import stack_sampler as lines_module
from headrace.doctor.probe.batch_production import ProducedBatch
from headrace.doctor.probe.stack_sampler import HUNG_NS, CodeLines, Stack, StackSampler, stack_of
from headrace.doctor.probe.stages import Account, Stages

HERE = Path(__file__)
DEADLINE_S = 20.0


def making(since_ns: int = 0) -> ProducedBatch:
    """A batch, made by the calling thread since some time ago."""
    return ProducedBatch(0, 0, Account(Stages(pytest.fail)), start=time.monotonic_ns() - since_ns)


@dataclass
class Looks:
    """What a sampler told."""

    places: list[str] = field(default_factory=list)
    weights_ns: list[int] = field(default_factory=list)
    hung: list[tuple[Any, int, str]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def look(self, stack: Stack, ns: int) -> None:
        self.places.append(stack[0][0].co_name)
        self.weights_ns.append(ns)

    def sampler(self) -> StackSampler:
        return StackSampler(self.look, lambda *told: self.hung.append(told), self.errors.append)


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def sampler(looks: Looks) -> Iterator[StackSampler]:
    sampler = looks.sampler()
    yield sampler
    sampler.stop()


def spin_until(condition: Callable[[], Any]) -> None:
    """As the user's code does: it runs, and gives way to other threads."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0)


def test_the_thread_ends_when_told_and_comes_back_with_the_next_batch(sampler: StackSampler, looks: Looks) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "headrace-doctor-lines"]

    assert threads() == []
    sampler.begin(making())
    assert len(threads()) == 1
    sampler.stop()
    assert threads() == []
    sampler.stop()
    looks.places.clear()
    sampler.begin(making())
    spin_until(lambda: looks.places)
    assert looks.places


def test_a_batch_that_hangs_is_told_once_with_its_stack(sampler: StackSampler, looks: Looks) -> None:
    batch = making(since_ns=HUNG_NS + 1_000_000_000)
    sampler.begin(batch)
    spin_until(lambda: looks.hung)
    told = len(looks.places)
    sampler._due_ns = 0
    spin_until(lambda: len(looks.places) > told)
    ((what, taken_ns, stack),) = looks.hung
    assert what is batch
    assert taken_ns > HUNG_NS
    assert "test_a_batch_that_hangs_is_told_once_with_its_stack" in stack
    assert HERE.name in stack


class Names:
    """Numbers for texts, as the evidence gives."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> int:
        self.texts.append(text)
        return len(self.texts) - 1


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def lines(names: Names) -> CodeLines:
    return CodeLines(names)


def test_the_innermost_line_of_the_users_code_is_charged(lines: CodeLines, names: Names) -> None:
    """Here the library is json, which calls what it is given."""

    def hook(_: Any) -> None:
        lines.add(stack_of(sys._getframe()), 2_000)

    json.loads("{}", object_hook=hook)
    lines.add(stack_of(sys._getframe()), 1_000)
    inner, outer = names.texts
    assert inner.startswith(f"{HERE}:{hook.__code__.co_firstlineno + 1}:")
    assert inner.endswith("hook")
    assert outer.endswith("test_the_innermost_line_of_the_users_code_is_charged")
    assert lines.take() == [(0, 2), (1, 1)]
    assert lines.take() == []


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/me/project/train.py", lines_module._OWN),
        ("<ipython-input-3-abc>", lines_module._OWN),
        ("/venv/lib/python3.11/site-packages/PIL/Image.py", lines_module._OTHERS),
        ("/usr/lib/python3/dist-packages/numpy/core.py", lines_module._OTHERS),
        ("<frozen importlib._bootstrap>", lines_module._OTHERS),
        (json.__file__, lines_module._OTHERS),
        (lines_module.__file__, lines_module._OTHERS),
        ("/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", lines_module._OUTSIDE),
        ("/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", lines_module._OUTSIDE),
        ("/venv/lib/python3.11/site-packages/torch/utils/data/dataset.py", lines_module._OTHERS),
    ],
)
def test_whose_code_it_is(file: str, kind: int) -> None:
    assert lines_module._kind_of(file) == kind


class Held:
    """What a variable of the user's holds."""


def test_a_look_keeps_no_variable_of_the_user_alive() -> None:
    looking, let_go = threading.Event(), threading.Event()

    def look(stack: Stack, ns: int) -> None:
        looking.set()
        let_go.wait(DEADLINE_S)

    sampler = StackSampler(look, lambda *told: None, lambda error: None)
    batch = making()

    def makes() -> weakref.ref[Held]:
        held = Held()
        sampler.begin(batch)
        spin_until(looking.is_set)
        return weakref.ref(held)

    try:
        assert makes()() is None
        assert looking.is_set()
    finally:
        let_go.set()
        sampler.stop()


COLLECTING = """
    import gc, sys, threading
    from headrace.doctor.probe.stack_sampler import frame_of

    class Cycle:
        def __init__(self):
            self.itself, self.local = self, threading.local()
            self.local.value = 1

    def deep(frames):
        return look() if frames == 0 else deep(frames - 1)

    def look():
        gc.set_threshold(1, 1, 1)
        try:
            return frame_of(threading.get_ident())
        finally:
            gc.set_threshold(700, 10, 10)

    for _ in range(50):
        gc.disable()
        for _ in range(20):
            Cycle()
        gc.enable()
        assert deep(30) is not None
    print("done", gc.isenabled())
"""
"""Garbage with threading.locals in it, and a collection due at the next allocation."""


def test_a_collection_that_frees_locals_does_not_hang_it() -> None:
    assert run_python(COLLECTING) == (0, "done True\n", "")
