"""`device/nested.py`: every way people nest a batch keeps its type, and what is no tensor stays what it was."""

from __future__ import annotations

from array import array
from collections import OrderedDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from headrace.device.nested import map_tensors

Pair = namedtuple("Pair", ["image", "label"])


@dataclass(frozen=True)
class Frozen:
    image: torch.Tensor
    name: str
    made: int = field(default=0, init=False)


class Output(dict):
    """As transformers' ModelOutput: its entries are attributes too, and it has no `update`."""

    def __init__(self, **entries):
        for key, value in entries.items():
            self[key] = value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        setattr(self, key, value)

    def update(self, *_, **__):
        raise TypeError("no update")


class Tagged(dict):
    tag = None


def doubled(path, tensor):
    return tensor * 2


def one():
    return torch.ones(2)


def tagged():
    batch = Tagged(image=one())
    batch.tag = "kept"
    return batch


CASES = {
    "tensor": (one, lambda new: [new]),
    "dict": (lambda: {"image": one()}, lambda new: [new["image"]]),
    "OrderedDict": (lambda: OrderedDict(image=one()), lambda new: [new["image"]]),
    "defaultdict": (lambda: defaultdict(list, image=one()), lambda new: [new["image"]]),
    "ModelOutput": (lambda: Output(image=one()), lambda new: [new["image"], new.image]),
    "mapping proxy": (lambda: MappingProxyType({"image": one()}), lambda new: [new["image"]]),
    "dict with an attribute": (tagged, lambda new: [new["image"]]),
    "list": (lambda: [one(), "a"], lambda new: [new[0]]),
    "deque": (lambda: deque([one(), "a"], maxlen=3), lambda new: [new[0]]),
    "UserList": (lambda: UserList([one(), "a"]), lambda new: [new[0]]),
    "tuple": (lambda: (one(), 3), lambda new: [new[0]]),
    "named tuple": (lambda: Pair(one(), 3), lambda new: [new.image]),
    "dataclass": (lambda: Frozen(one(), "a"), lambda new: [new.image]),
    "nested": (lambda: {"a": [Pair(one(), (one(),))]}, lambda new: [new["a"][0].image, new["a"][0].label[0]]),
    "packed": (lambda: pack_sequence([one(), one()[:1]]), lambda new: [new.data]),
}


@pytest.mark.parametrize(("make", "tensors"), CASES.values(), ids=CASES)
def test_replaces_tensors_and_keeps_types(make, tensors):
    batch = make()
    new = map_tensors(batch, doubled)
    assert type(new) is type(batch)
    for tensor in tensors(new):
        assert (tensor == 2).all()
    for tensor in tensors(batch):
        assert (tensor == 1).all(), "the source's own batch was changed"


class Unmakeable(Sequence):
    """Is not made from its items."""

    def __init__(self, first, second):
        self.items = [first, second]

    def __len__(self):
        return 2

    def __getitem__(self, at):
        return self.items[at]


def test_what_cannot_be_made_again_becomes_a_list():
    new = map_tensors(Unmakeable(one(), "a"), doubled)
    assert (new[0] == 2).all()
    assert new[1:] == ["a"]
    nothing = Unmakeable("a", "b")
    assert map_tensors(nothing, doubled) is nothing


def test_keeps_what_is_no_tensor():
    marker = object()
    others = {"range": range(3), "buffer": memoryview(b"ab"), "array": array("q", [1]), "bytes": bytearray(2)}
    new = map_tensors({"image": one(), "marker": marker, "text": ["a"], "none": None} | others, doubled)
    assert all(new[name] is other for name, other in others.items())
    assert new["marker"] is marker
    assert new["text"] == ["a"]
    assert new["none"] is None


def test_keeps_attributes_and_factories():
    assert map_tensors(tagged(), doubled).tag == "kept"
    assert map_tensors(defaultdict(list, image=one()), doubled)["new"] == []
    assert map_tensors(Frozen(one(), "a"), doubled).name == "a"


def test_hands_on_a_batch_in_which_nothing_changes():
    batch = {"a": [one(), (one(), "x")], "b": Pair(one(), 1)}
    assert map_tensors(batch, lambda path, tensor: tensor) is batch


def test_names_the_way_to_each_tensor():
    seen = []

    def note(path, tensor):
        seen.append(path)
        return tensor

    map_tensors({"a": [one(), Pair(one(), 1)], "b": Frozen(one(), "x")}, note)
    assert seen == [("a", 0), ("a", 1, "image"), ("b", "image")]


def test_packed_sequences_keep_their_sizes_on_the_cpu():
    packed = pack_sequence([one(), one()[:1]], enforce_sorted=False)
    new = map_tensors(packed, lambda path, tensor: tensor.to("meta"))
    assert (new.data.device.type, new.sorted_indices.device.type, new.batch_sizes.device.type) == (
        "meta",
        "meta",
        "cpu",
    )
