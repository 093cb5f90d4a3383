"""How inspected samples are produced: which calls of libraries, from which line, and how long each takes."""

from __future__ import annotations

import inspect
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from numpy import median
from PIL import Image, ImageEnhance, ImageFilter
from probing import notes, probed, records
from torch.utils.data import DataLoader, Dataset, IterableDataset

from headrace.doctor.probe.sample_calls import WATCHED
from headrace.doctor.probe.sample_comparison import MOST_COLLATED, MOST_SAMPLES

BATCH = 4
SIZE = (24, 16)


def picture(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(3 * BATCH):
        picture(number).save(folder / f"{number}.png")
    return folder


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


class Produced(Dataset[Any]):
    """Samples by a function of their numbers."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return 3 * BATCH

    def __getitem__(self, key: int) -> Any:
        return self.make(key)


class Trace:
    """What was written of the samples and batches of a dataset."""

    def __init__(self, path: Path, dataset: Any, **given: Any) -> None:
        with probed(path, observe=given.pop("observe", True)):
            for _ in DataLoader(dataset, BATCH, **given):
                pass
        assert "hook-off" not in notes(path)
        names = {number: text for _, number, text in records(path, "name")}
        self.samples = [self._read(record, names) for record in records(path, "sample")]
        self.collated = [self._read(record, names) for record in records(path, "collated")]

    @staticmethod
    def _read(record: list[Any], names: dict[int, str]) -> dict[str, Any]:
        kind, *values = record
        names_of = ("epoch", "index", "key", "wall", "calls", *(["output"] if kind == "collated" else []))
        fields = dict(zip(names_of, values, strict=True))
        fields["calls"] = [(names[stage], names.get(place), facts) for stage, place, facts in fields["calls"]]
        return fields

    def facts(self, stage: str) -> list[dict[str, Any]]:
        """Facts of such calls in the first sample."""
        return [facts for name, _, facts in self.samples[0]["calls"] if name == stage]


@pytest.mark.long
def test_a_samples_calls_are_written_in_order_with_place_and_facts(tmp_path: Path, folder: Path) -> None:
    def make(key: int) -> float:
        image = Image.open(folder / f"{key}.png").convert("L")
        image = image.resize((12, 8), Image.Resampling.BICUBIC)
        image = image.crop((0, 0, 8, 8)).filter(ImageFilter.GaussianBlur(1)).filter(ImageFilter.SHARPEN)
        values = np.array(image)
        return float(np.percentile(values, 98))

    trace = Trace(tmp_path, Produced(make), observe=False)
    assert [(one["index"], one["key"]) for one in trace.samples] == [(1 + key // 4, str(4 + key)) for key in range(8)]
    calls = trace.samples[0]["calls"]
    assert [(name, {key: value for key, value in facts.items() if key != "us"}) for name, _, facts in calls] == [
        ("decode:Pillow open", {"mode": "RGB", "format": "PNG"}),
        ("transform:Pillow convert", {"image": {"mode": "RGB"}}),
        ("decode:Pillow load", {"mode": "RGB", "format": "PNG", "inside": 1}),
        ("transform:Pillow resize", {"image": {"mode": "L"}}),
        ("transform:Pillow crop", {"image": {"mode": "L"}}),
        ("transform:Pillow filter", {"image": {"mode": "L"}, "filter": {"class": "PIL.ImageFilter.GaussianBlur"}}),
        ("transform:Pillow filter", {"image": {"mode": "L"}, "filter": {"class": "PIL.ImageFilter.SHARPEN"}}),
        ("call:numpy.array", {"image": {"mode": "L"}}),
        ("call:numpy.percentile", {"image": {"shape": [8, 8], "dtype": "uint8"}}),
    ]
    assert all(facts["us"] >= 0 for _, _, facts in calls)
    lines, start = inspect.getsourcelines(make)
    places = [place.rsplit(":", 2) for _, place, _ in calls]
    assert {file for file, _, _ in places} == {__file__}
    assert {name for _, _, name in places} <= {make.__name__, make.__qualname__}
    assert "resize" in lines[int(places[3][1]) - start]


def test_a_call_without_an_array_tells_the_only_one_that_it_gave(tmp_path: Path) -> None:
    def make(key: int) -> int:
        values = np.array([[key, 2.0]])
        return len(values) + len(np.quantile([1, 2], [0.5, 0.6])) + len(random.choices([values, values], k=2))

    calls = Trace(tmp_path, Produced(make)).samples[0]["calls"]
    assert [(name, facts.get("gives")) for name, _, facts in calls] == [
        ("call:numpy.array", ["ndarray", [1, 2], "float64"]),
        ("call:numpy.quantile", ["ndarray", [2], "float64"]),
        ("call:random.choices", None),
    ]


@pytest.mark.long
def test_a_batch_is_described_as_it_was_collated(tmp_path: Path) -> None:
    def collate(samples: list[int]) -> dict[str, Any]:
        return {"keys": torch.tensor(samples), "order": sorted(samples, key=lambda key: random.random())}

    trace = Trace(tmp_path, Produced(lambda key: key), collate_fn=collate)
    assert [one["index"] for one in trace.collated] == [1, 2]
    assert len(trace.collated) == MOST_COLLATED
    first = trace.collated[0]
    assert [leaf[:4] for leaf in first["output"]][:2] == [
        ["keys", "tensor", [4], "int64"],
        ["order.0", "int", None, None],
    ]
    assert first["output"][0][4:] == [4, 7]
    assert [name.partition(":")[0] for name, _, _ in first["calls"]] == ["collate", *["call"] * 5]
    assert set(first["calls"][0][2]) == {"us"}
    assert all(facts["inside"] == 0 for _, _, facts in first["calls"][1:])


@pytest.mark.long
def test_a_tokeniser_is_named_by_its_class(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    trace = Trace(tmp_path, Produced(lambda key: tokenizer.encode("a b" * key).ids), collate_fn=list)
    (facts,) = trace.facts("tokenise:tokenizers encode")
    assert facts["class"] == "tokenizers.Tokenizer"
    assert set(facts) == {"us", "class"}


@pytest.mark.long
def test_what_a_stream_yields_is_looked_at_too(tmp_path: Path, folder: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            for key in range(3 * BATCH):
                yield {"__key__": f"sample {key}", "size": size_of(folder / f"{key}.png")}

    trace = Trace(tmp_path, Stream(), collate_fn=len)
    assert [one["key"] for one in trace.samples] == [f"'sample {key}'" for key in range(4, 12)]
    assert trace.facts("decode:Pillow open")[0]["format"] == "PNG"


@pytest.mark.long
def test_samples_that_come_together_are_looked_at_one_by_one(tmp_path: Path, folder: Path) -> None:
    class Together(Produced):
        def __getitems__(self, keys: list[int]) -> list[Any]:
            return [self[key] for key in keys]

    trace = Trace(tmp_path, Together(lambda key: size_of(folder / f"{key}.png")), observe=False)
    assert [one["key"] for one in trace.samples] == [str(4 + key) for key in range(MOST_SAMPLES)]
    assert trace.facts("decode:Pillow open")[0]["format"] == "PNG"


def test_what_users_know_by_another_name_has_that_name_and_is_put_back(tmp_path: Path) -> None:
    table = pandas.DataFrame({"file": [f"{number}.png" for number in range(3 * BATCH)]})
    watched = (ImageEnhance.Color.__init__, ImageEnhance.Color.enhance, type(table.loc).__getitem__)

    def make(key: int) -> str:
        ImageEnhance.Color(picture(key)).enhance(0.5)
        return str(table.loc[key, "file"])

    names = [name for name, *_ in Trace(tmp_path, Produced(make)).samples[0]["calls"]]
    assert [name for name in names if name.startswith("call:P")] == ["call:PIL.ImageEnhance"] * 2
    assert names[-1] == "call:pandas.DataFrame.loc"
    assert watched == (ImageEnhance.Color.__init__, ImageEnhance.Color.enhance, type(table.loc).__getitem__)


def test_functions_are_put_back_when_no_sample_is_looked_at(tmp_path: Path) -> None:
    originals = {name: vars(np)[name] for name in WATCHED["numpy"]}
    seen: list[bool] = []

    def make(key: int) -> int:
        seen.append(np.percentile is originals["percentile"])
        if key == 5:
            raise LookupError("no such sample")
        return key

    with probed(tmp_path), pytest.raises(LookupError):
        for _ in DataLoader(Produced(make), BATCH):
            pass
    assert seen == [True] * 4 + [False] * 2
    assert all(vars(np)[name] is original for name, original in originals.items())
    assert "quantile" not in vars(torch.Tensor)


@pytest.mark.long
def test_a_function_that_the_script_holds_by_name_can_be_pickled(tmp_path: Path) -> None:
    trace = Trace(tmp_path, Produced(lambda key: (len(pickle.dumps(median)), float(np.quantile([key], 0.5)))))
    assert trace.facts("call:numpy.median") == []
    assert len(trace.facts("call:numpy.quantile")) == 1
