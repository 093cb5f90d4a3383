"""A look at samples of datasets that do anything: the look says what it saw, and the process is as before."""

from __future__ import annotations

import os
import pickle
import random
import sys
import threading
import time
import tracemalloc
from collections import UserDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from file_trees import tree
from PIL import Image, ImageFilter, ImageOps
from probing import probed, records
from torch.utils.data import DataLoader, Dataset, IterableDataset
from training_loops import Loop

from headrace.doctor.explain.look import Look, read_look
from headrace.doctor.probe.look import value_look
from headrace.doctor.probe.look.held_objects import told_by_calls, with_own_known
from headrace.doctor.probe.look.leaves import EVERY, MOST_TOKENS, counted
from headrace.doctor.probe.look.value_look import HANGS, LATE, look_at_values, look_within

COUNT = 12


class Made(Dataset[Any]):
    """Samples that a function makes of their places."""

    def __init__(self, make: Callable[[int], Any], count: int = COUNT) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def looked(folder: Path, make: Callable[[int], Any], **options: Any) -> Look:
    """Look at what a function makes, each sample as it is unless a collate function is given."""
    loader = DataLoader(Made(make), **{"collate_fn": lambda samples: samples[0], **options})
    assert look_within(loader, str(folder / "look"), 120.0) == ""
    return read_look(folder / "look")


def test_a_sample_that_raises_costs_that_sample(tmp_path: Path) -> None:
    def make(index: int) -> Any:
        if index == 0:
            raise ValueError("none")
        if index == COUNT - 1:
            raise LookupError("lost")
        return np.full(3, index)

    look = looked(tmp_path, make)
    assert set(look.errors) == {"ValueError: none", "LookupError: lost"}
    assert {each.index for each in look.samples} == {2, 3, 5, 6, 8, 9}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_sample_that_ends_the_program_ends_the_look_alone(tmp_path: Path, error: BaseException) -> None:
    def make(_: int) -> Any:
        raise error

    why = look_within(DataLoader(Made(make)), str(tmp_path / "look"), 5.0)
    assert why.startswith(type(error).__name__)
    assert not (tmp_path / "look").exists()


def test_a_sample_that_never_comes_costs_the_looks_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_look, "GRACE_S", 0.3)
    ends = threading.Event()
    began = time.monotonic()
    assert look_within(DataLoader(Made(lambda _: ends.wait())), str(tmp_path / "look"), 0.2) == LATE
    assert 0.5 <= time.monotonic() - began < 60
    assert (tmp_path / f"look{HANGS}").read_text() == str(os.getpid())  # the doctor ends it, whatever it waits for
    ends.set()


def test_slow_samples_end_the_look_in_time_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def make(index: int) -> int:
        now[0] += 0.3
        return index

    with monkeypatch.context() as patched:
        patched.setattr(value_look.time, "monotonic", lambda: now[0])
        found = look_at_values(DataLoader(Made(make)), str(tmp_path / "look"), most_s=1.0)
    assert now[0] < 1.6  # nothing more is made once the time is over
    assert found["ended"] == "time"
    assert 3 <= len(read_look(tmp_path / "look").samples) <= 4


def test_shared_generators_are_as_before(tmp_path: Path) -> None:
    def make(_: int) -> Any:
        torch.manual_seed(random.randint(0, 9))
        np.random.seed(random.randint(0, 9))
        return random.random(), np.random.rand(2), torch.rand(2)

    def state() -> tuple[Any, ...]:
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    before = state()
    looked(tmp_path, make)
    assert state() == before


def test_large_samples_end_the_look_by_size_in_bounded_memory(tmp_path: Path) -> None:
    block = np.zeros(500_000_000, np.uint8)
    loader = DataLoader(Made(lambda _: block), collate_fn=lambda samples: samples[0])
    tracemalloc.start()
    try:
        found = look_at_values(loader, str(tmp_path / "look"))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert (found["ended"], len(found["samples"])) == ("size", 1)
    assert (tmp_path / "look").stat().st_size < 10_000


class Stream(IterableDataset[Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


@pytest.mark.parametrize(("count", "seen"), [(3, 3), (100, 8)])
def test_a_streams_first_samples_are_looked_at(tmp_path: Path, count: int, seen: int) -> None:
    found = look_at_values(DataLoader(Stream(count), batch_size=2), str(tmp_path / "look"))
    look = read_look(tmp_path / "look")
    assert (found["length"], look.columns) == (None, {})
    assert sorted({each.index for each in look.samples}) == list(range(seen))


def test_a_dataset_that_makes_batches_itself(tmp_path: Path) -> None:
    loader = DataLoader(Made(lambda index: torch.full((4, 2), index)), batch_size=None)
    look_at_values(loader, str(tmp_path / "look"))
    look = read_look(tmp_path / "look")
    assert look.is_batched
    assert look.samples[0].batch[()].value.shape == (4, 2)


def test_nothing_is_pickled_and_no_file_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(COUNT):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(data / f"{number}.png")
    before = tree(data)

    class Photos(Made):
        def __reduce_ex__(self, _: Any) -> Any:
            raise AssertionError("pickled")

    for name in ("dumps", "dump", "loads", "load"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("pickled"))
    modules = set(sys.modules)
    dataset = Photos(lambda index: np.asarray(Image.open(data / f"{index}.png")))
    assert look_within(DataLoader(dataset), str(tmp_path / "look")) == ""
    assert tree(data) == before
    assert not [name for name in set(sys.modules) - modules if "pickle" in name]


transforms = pytest.importorskip("torchvision.transforms")


class Blur:
    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, picture: Image.Image) -> Image.Image:
        if random.random() >= self.p:
            return picture
        return picture.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


class Solarization:
    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, picture: Image.Image) -> Image.Image:
        return ImageOps.solarize(picture) if random.random() < self.p else picture


def test_a_blur_is_told_by_the_radii_of_its_calls() -> None:
    random.seed(0)
    (blur,) = told_by_calls(Blur(1.0)) or [None]
    assert type(blur).__name__ == "GaussianBlur"
    assert blur.sigma == pytest.approx((0.1, 2.0), abs=0.11)
    (applied,) = told_by_calls(Blur(0.5)) or [None]
    assert (type(applied).__name__, applied.p) == ("RandomApply", 0.5)


def test_solarizing_is_told_by_the_share_of_its_calls() -> None:
    random.seed(0)
    (solarize,) = told_by_calls(Solarization(0.2)) or [None]
    assert (type(solarize).__name__, solarize.threshold, solarize.p) == ("RandomSolarize", 128, 0.2)
    assert told_by_calls(Solarization(0.0)) == []


@pytest.mark.parametrize("part", [lambda picture: picture.rotate(5), lambda picture: 3, str], ids=["turn", "3", "text"])
def test_anything_else_is_not_known(part: Any) -> None:
    assert told_by_calls(part) is None


def test_own_parts_of_a_transform_are_replaced_in_a_copy() -> None:
    inner = transforms.RandomApply([Blur(1.0)], 0.5)
    whole = transforms.Compose([transforms.RandomResizedCrop(32), inner, transforms.ToTensor()])
    known, own = with_own_known(whole)
    assert [name.rpartition(".")[2] for name in own] == ["Blur"]
    assert type(known.transforms[1].transforms[0]).__name__ == "GaussianBlur"
    assert type(inner.transforms[0]) is Blur
    assert whole.transforms[1] is inner


PAD = 0
WIDTH = 12


def tokens(*lengths: int, pad: int = PAD) -> torch.Tensor:
    """Rows of so many tokens other than the padding, each one greater than the one before."""
    rows = torch.full((len(lengths), WIDTH), pad)
    for row, length in enumerate(lengths):
        rows[row, :length] = torch.arange(1, length + 1)
    return rows


def mask(*lengths: int) -> torch.Tensor:
    return (tokens(*lengths) != PAD).long()


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": tokens(3, 9, 5), "labels": torch.arange(3)},
        {"attention_mask": mask(3, 9, 5), "input_ids": torch.ones(3, WIDTH, dtype=torch.int64)},
        {"input_ids": torch.ones(3, WIDTH, dtype=torch.int64), "attention_mask": mask(3, 9, 5).bool()},
        UserDict({"attention_mask": mask(3, 9, 5)}),
        (tokens(3, 9, 5), torch.arange(3)),
        [{"input_ids": tokens(3, 9, 5).int()}],
        tokens(3, 9, 5).numpy(),
        {"attention_mask": mask(3, 9, 5).flip(1)},
        tokens(3, 9, 5, pad=77),
    ],
    ids=["ids", "mask", "mask-last", "UserDict", "tuple", "nested", "array", "left", "77"],
)
def test_tokens_that_are_no_padding_are_counted(batch: Any) -> None:
    assert counted(batch) == (3, WIDTH, 17, 9)


@pytest.mark.parametrize(
    "batch",
    [
        torch.rand(4, 16),
        torch.ones(16, dtype=torch.int64),
        torch.ones(4, 4, dtype=torch.int64),
        torch.ones(2, 3, 8, 8, dtype=torch.uint8),
        tokens(3, 9, 5).byte(),
        torch.tensor([[0, 1, 0, 0, 1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0, 0, 0, 0, 0]]),
        torch.zeros(4, 16, dtype=torch.int64),
        torch.ones(4, 0, dtype=torch.int64),
        torch.ones(4, 16, dtype=torch.int64, device="meta"),
        np.zeros((1, MOST_TOKENS + 1), np.uint8),
        {"text": ["a", "b"]},
        object(),
        None,
    ],
)
def test_what_holds_no_sequences_tells_nothing(batch: Any) -> None:
    assert counted(batch) is None


def test_a_few_batches_of_a_run_are_looked_at(tmp_path: Path) -> None:
    sentences = [tokens(1 + number % 5)[0] for number in range(4 * EVERY * 3)]
    with probed(tmp_path):
        for batch in DataLoader(sentences, batch_size=4):  # type: ignore[arg-type]
            Loop().step((torch.ones(4, 8) * batch.sum(), torch.ones(4, 1)))
    found = records(tmp_path, "padding")
    assert [record[1:5] for record in found] == [[0, index, 4, WIDTH] for index in (0, EVERY, 2 * EVERY)]
    assert found[0][5:] == [1 + 2 + 3 + 4, 4]
