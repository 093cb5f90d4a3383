"""The user's own objects: no code of theirs is run that would not have run, none is changed, none is held longer."""

from __future__ import annotations

import gc
import json
import types
import weakref
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from observed_runs import python
from probing import merged, probed, run_probed
from torch.utils.data import DataLoader, IterableDataset
from training_loops import pairs

from headrace.doctor.probe.look.leaves import bytes_and_shape
from headrace.doctor.probe.patches import Patches

ran: list[str] = []


class Lazy:
    """A batch that does something whenever it is asked."""

    def __init__(self, samples: Any) -> None:
        self.rows = torch.stack(list(samples))

    @property
    def data(self) -> dict[str, Any]:
        ran.append("data")
        return {}

    @property
    def nbytes(self) -> int:
        ran.append("nbytes")
        return 1

    def __getattr__(self, name: str) -> Any:
        ran.append(name)
        return None


class LazyList(list[Any]):
    def __getitem__(self, index: Any) -> Any:
        ran.append("list")
        return list.__getitem__(self, index)


class LazyDict(dict[str, Any]):
    def values(self) -> Any:
        ran.append("dict")
        return dict.values(self)


class Traced(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        ran.append("tensor")
        return super().__torch_function__(*args, **kwargs)


class Slots:
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        ran.append(name)
        return None


ROWS = [torch.ones(2), torch.ones(2)]
BATCHES = {
    "object": (lambda: Lazy(ROWS), (16, "float32[2,2]")),
    "list": (lambda: LazyList(ROWS), (16, "float32[2] float32[2]")),
    "dict": (lambda: LazyDict(a=ROWS[0]), (8, "float32[2]")),
    "tensor": (lambda: ROWS[0].as_subclass(Traced), (8, "float32[2]")),
    "slots": (Slots, (None, None)),
    "array": (lambda: np.ones(3), (24, "float64[3]")),
    "user's dict": (lambda: UserDict(a=np.ones(3)), (24, "float64[3]")),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_measured_and_none_of_its_code_is_run(name: str) -> None:
    make, (size, shape) = BATCHES[name]
    batch: Any = make()
    ran.clear()
    found, shapes = bytes_and_shape(batch)
    assert (found, None if shapes is None else " ".join(map(_text, shapes))) == (size, shape)
    assert ran == []


def _text(leaf: Any) -> str:
    return f"{str(leaf[0]).rpartition('.')[2]}[{','.join(map(str, leaf[1]))}]"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_lives_no_longer_than_the_user_holds_it(tmp_path: Path, workers: int) -> None:
    with probed(tmp_path):
        for batch in DataLoader(pairs(12), batch_size=4, num_workers=workers):
            held = weakref.ref(batch[0])
            del batch
            assert held() is None


class Stream(IterableDataset[Any]):
    """Numbers from a generator, which notes when it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __iter__(self) -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            self.closed += 1


def test_a_datasets_iterator_lives_no_longer_than_its_pass(tmp_path: Path) -> None:
    stream = Stream()
    with probed(tmp_path):
        gc.disable()
        try:
            batches = iter(DataLoader(stream, batch_size=4))
            next(batches)
            next(batches)
            del batches
            assert stream.closed == 1
        finally:
            gc.enable()


def failed(folder, *count):
    """What came of the training by the function that failed, and the hooks that were noted to be off."""
    ran = run_probed(python("failing_probe.py", *count), folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), [note for note in merged(folder).notes if note.code == "hook-off"]


def check(outcomes, notes):
    assert {name: said for name, said in outcomes.items() if said != "fine"} == {}
    assert notes
    assert all("this function of the probe fails" in note.text for note in notes)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_failure_of_any_function_of_the_probe_changes_the_training(tmp_path):
    outcomes, notes = failed(tmp_path)
    assert len(outcomes) > 300
    assert len(notes) > len(outcomes) / 10  # not every function is called by this training, but some are
    check(outcomes, notes)


@pytest.fixture
def patches():
    patches = Patches()
    yield patches
    patches.restore()


def counting(calls):
    def make(original):
        def wrapper(*args, **kwargs):
            calls.append(args)
            return original(*args, **kwargs)

        return wrapper

    return make


class Base:
    def method(self):
        return self

    @classmethod
    def made_by_class(cls):
        return cls

    @staticmethod
    def static(value):
        return value


def make_classes():
    base = type("Fresh", (Base,), dict(vars(Base)))
    return base, type("Derived", (base,), {})


@pytest.mark.parametrize("inherited", [False, True], ids=["own", "inherited"])
def test_each_kind_of_method_still_binds_as_it_did(inherited, patches):
    base, derived = make_classes()
    owner = derived if inherited else base
    before = dict(vars(owner))
    calls = []
    for name in ("method", "made_by_class", "static"):
        assert patches.replace(owner, name, counting(calls))
    instance = derived()
    assert instance.method() is instance
    assert derived.made_by_class() is instance.made_by_class() is derived
    assert derived.static(3) == instance.static(3) == 3
    assert len(calls) == 5
    patches.restore()
    assert dict(vars(owner)) == before


def test_what_is_not_there_or_takes_nothing_is_left(patches):
    module = types.ModuleType("module")
    module.value = 3
    assert not patches.replace(module, "absent", counting([]))
    assert not patches.replace(module, "value", counting([]))
    assert not patches.replace(dict, "get", counting([]))
    assert vars(module)["value"] == 3


def test_what_others_put_over_it_stays(patches):
    module = types.ModuleType("module")
    module.call = lambda: 1
    patches.replace(module, "call", counting([]))
    module.call = theirs = lambda: 2
    patches.restore()
    assert module.call is theirs
