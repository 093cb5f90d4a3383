"""What the probe says of the user's objects: their content, within bounds, without running any of their code."""

from __future__ import annotations

import enum
import functools
import json
import pathlib
from collections import OrderedDict, namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from probing import probed, records
from torch.utils.data import DataLoader, Dataset

from headrace.doctor.probe.described_objects import MOST_CHARS, ObjectDescriber

MEAN = (0.5, 0.25)
Pair = namedtuple("Pair", "left right")


class Filter(enum.Enum):
    LINEAR = "linear"


class Slotted:
    __slots__ = ("size", "unset")

    def __init__(self) -> None:
        self.size = 3


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor([2.0, 4.0]))
        self.inner = torch.nn.Identity()
        self.eps = 1e-3


class Hostile:
    """Fails a test that runs any of its code."""

    def __init__(self) -> None:
        object.__setattr__(self, "held", 7)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    def __repr__(self) -> str:
        raise AssertionError("asked for its text")

    def __len__(self) -> int:
        raise AssertionError("asked for its length")

    __eq__ = __hash__ = __bool__ = __iter__ = __len__  # type: ignore[assignment]


class HostileList(list[int]):
    def __iter__(self) -> Any:
        raise AssertionError("iterated")

    def __len__(self) -> int:
        raise AssertionError("asked for its length")


class HostileText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError("asked for its text")


def describe(thing: Any, **limits: int) -> Any:
    found = ObjectDescriber(**limits).describe({"it": thing})["it"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def normalise(values: Any, by: Any = Filter.LINEAR) -> Any:
    return [value - MEAN[0] for value in values]


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("inf"), {"float": "inf"}),
        (1 << 70, {"int": hex(1 << 70)}),
        ("a" * 201, {"text": 201, "first": "a" * 200}),
        (b"abc", {"bytes": 3}),
        ((1, (2, 3)), [1, [2, 3]]),
        ({"b", "a"}, ["a", "b"]),
        (range(2, 8), {"range": [2, 8, 1]}),
        (list(range(65)), {"list": 65, "first": [0, 1, 2]}),
        ({"a": 1, 2: None}, {"dict": {"a": 1, "2": None}}),
        (OrderedDict(a=[1]), {"dict": {"a": [1]}}),
        ({key: -key for key in range(70)}, {"dict_of": 70, "first": [["0", 0], ["1", -1], ["2", -2]]}),
        (Filter.LINEAR, {"enum": f"{__name__}.Filter", "name": "LINEAR", "value": "linear"}),
        (Pair(1, "x"), {"class": f"{__name__}.Pair", "attributes": {"left": 1, "right": "x"}}),
        (numpy.float32(0.5), 0.5),
        (numpy.dtype("uint16"), {"dtype": "uint16"}),
        (torch.bfloat16, {"dtype": "bfloat16"}),
        (torch.device("cuda", 1), {"device": "cuda:1"}),
        (numpy.zeros((2, 2), "int8"), {"array": "numpy", "shape": [2, 2], "dtype": "int8", "values": [0] * 4}),
        (numpy.zeros((9, 9)), {"array": "numpy", "shape": [9, 9], "dtype": "float64"}),
        (torch.tensor([1.0]), {"array": "torch", "shape": [1], "dtype": "float32", "values": [1.0]}),
        (pathlib.PurePosixPath("/a/b"), {"path": "/a/b"}),
        (Image.new("L", (4, 2)), {"class": "PIL.Image.Image", "mode": "L", "size": [4, 2]}),
        (json, {"module": "json"}),
        (len, {"function": "builtins.len"}),
        (numpy.percentile, {"function": "numpy.percentile"}),
        (json.dumps, {"function": "json.dumps"}),
        (OrderedDict, {"type": "collections.OrderedDict"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_forms(thing: Any, expected: Any) -> None:
    assert describe(thing) == expected


def test_a_function_of_the_scripts_has_its_place_its_globals_and_what_it_is_given() -> None:
    found = describe(functools.partial(normalise, [1], by=MEAN))
    assert found == {
        "function": f"{__name__}.normalise",
        "file": __file__,
        "line": normalise.__code__.co_firstlineno,
        "partial": {"arguments": [[1]], "keywords": {"by": [0.5, 0.25]}},
    }
    assert describe(normalise)["globals"] == {"MEAN": [0.5, 0.25]}


def test_a_closure_and_a_bound_method_show_what_they_hold() -> None:
    size = 224
    assert describe(lambda: size)["closure"] == {"size": 224}
    method = describe(Scale().forward)
    assert method["function"].endswith("_forward_unimplemented")
    assert method["self"]["class"] == f"{__name__}.Scale"


def test_attributes_come_from_dict_and_slots_and_a_module_shows_what_it_was_given() -> None:
    assert describe(Slotted())["attributes"] == {"size": 3}
    assert describe(SimpleNamespace(size=4))["attributes"] == {"size": 4}
    found = describe(Scale())
    assert found["bases"] == ["torch.nn.modules.module.Module"]
    attributes = found["attributes"]
    assert attributes["factor"]["values"] == [2.0, 4.0]
    assert attributes["inner"] == {"class": "torch.nn.modules.linear.Identity", "attributes": {}}
    assert set(attributes) == {"factor", "inner", "eps"}


def test_an_object_is_described_once_and_circles_end() -> None:
    shared, outer = Slotted(), Slotted()
    shared.size = outer  # type: ignore[assignment]
    outer.size = [shared, shared]  # type: ignore[assignment]
    first, second = describe(outer)["attributes"]["size"]
    assert first["attributes"]["size"] == {"class": f"{__name__}.Slotted", "again": "it"}
    assert second == {"class": f"{__name__}.Slotted", "again": "it.size.0"}
    inside: list[Any] = []
    inside.append(inside)
    assert "cut" in json.dumps(describe(inside))


def test_none_of_the_users_code_runs() -> None:
    found = describe([Hostile(), HostileList([4, 5]), HostileText("text")])
    assert found[0]["attributes"] == {"held": 7}
    assert found[1:] == [[4, 5], "text"]


def test_what_is_large_is_cut_where_it_lies_deep() -> None:
    deep = {f"name{number}": [[number] * 60] * 60 for number in range(60)}
    found = describe(deep)
    assert set(found["dict"]) == set(deep)
    assert len(json.dumps(found)) < 1.3 * MOST_CHARS
    assert describe([Slotted()], most_chars=1) == [{"class": f"{__name__}.Slotted", "cut": True}]


class Images(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.names = [f"{number}.jpg" for number in range(8)]
        self.scale = Scale()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3)


def test_a_loader_record_describes_what_it_was_given(tmp_path: Path) -> None:
    with probed(tmp_path):
        for _ in DataLoader(Images(), 2, shuffle=True, drop_last=True, collate_fn=torch.stack):
            pass
    ((*_, facts),) = records(tmp_path, "loader")
    found = facts["described"]
    assert found["dataset"]["attributes"]["names"] == Images().names
    assert found["dataset"]["bases"] == ["torch.utils.data.dataset.Dataset"]
    assert found["collate"]["function"].endswith("stack")
    assert found["sampler"]["class"] == "torch.utils.data.sampler.RandomSampler"
    assert found["sampler"]["attributes"]["data_source"]["again"] == "dataset"
    assert found["batch_sampler"]["attributes"]["batch_size"] == 2
    assert (found["drop_last"], found["generator"], found["worker_init"]) == (True, False, None)
