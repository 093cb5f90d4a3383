"""How inspected samples are produced: which calls of libraries, from which line, with what, and what comes out."""

from __future__ import annotations

import gc
import inspect
import io
import json
import pickle
import random
import sys
import tarfile
import zipfile
from collections import UserDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from numpy import median
from PIL import Image, ImageEnhance
from probing import notes, probed, records
from torch.utils.data import DataLoader, Dataset, IterableDataset

from headrace.doctor.probe.call_facts import LONG_LIST, MOST_LEAVES, leaves_of
from headrace.doctor.probe.sample_calls import MOST_CALLS, WATCHED, _held_by_the_user
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
    with tarfile.open(folder / "all.tar", "w") as tar, zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for number in range(3 * BATCH):
            tar.add(folder / f"{number}.png", f"{number}.png")
            archive.write(folder / f"{number}.png", f"{number}.png")
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
        fields = dict(zip(("epoch", "index", "key", "wall", "calls", "output"), record[1:], strict=True))
        fields["calls"] = [(names[stage], names.get(place), facts) for stage, place, facts in fields["calls"]]
        return fields

    def facts(self, stage: str) -> list[dict[str, Any]]:
        """Facts of such calls in the first sample."""
        return [facts for name, _, facts in self.samples[0]["calls"] if name == stage]


def test_a_samples_calls_are_written_in_order_with_place_and_facts(tmp_path: Path, folder: Path) -> None:
    def make(key: int) -> dict[str, Any]:
        image = Image.open(folder / f"{key}.png").convert("L")
        image = image.resize((12, 8), Image.Resampling.BICUBIC)
        image = image.crop((0, 0, 8, 8)).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        values = np.array(image)
        return {
            "image": torch.from_numpy(values),
            "high": np.percentile(values, 98),
            "meta": (key, "name"),
            "valid": values > 999,
        }

    trace = Trace(tmp_path, Produced(make), observe=False)
    assert [(one["index"], one["key"]) for one in trace.samples] == [(1 + key // 4, str(4 + key)) for key in range(8)]
    first = trace.samples[0]
    assert [name for name, *_ in first["calls"]] == [
        *(
            "decode:Pillow open",
            "read:file",
            "transform:Pillow convert",
            "decode:Pillow load",
            "transform:Pillow resize",
        ),
        *("transform:Pillow crop", "transform:Pillow transpose", "call:numpy.array", "call:torch.from_numpy"),
        "call:numpy.percentile",
    ]
    opened, read, converted, loaded, resized, cropped, transposed, _, _, percentile = (
        facts for _, _, facts in first["calls"]
    )
    path = str(folder / "4.png")
    assert (opened["path"], opened["format"], opened["mode"], opened["size"]) == (path, "PNG", "RGB", list(SIZE))
    assert (read["path"], read["inside"]) == (path, 0)
    assert (converted["from"], converted["mode"], converted["gives"]) == ("RGB", "L", ["PIL", [16, 24], "L"])
    assert (loaded["path"], loaded["inside"]) == (path, 2)
    assert (resized["size"], resized["resample"], resized["image"]["mode"]) == ([12, 8], 3, "L")
    assert (cropped["box"], transposed["method"]) == ([0, 0, 8, 8], 0)
    assert percentile["function"] == "numpy.percentile"
    assert percentile["arguments"][1] == 98
    assert all(facts["us"] >= 0 for name, _, facts in first["calls"] if name != "read:file")
    lines, start = inspect.getsourcelines(make)
    places = [place.rsplit(":", 2) for _, place, _ in first["calls"]]
    assert {file for file, _, _ in places} == {__file__}
    assert {name for _, _, name in places} <= {make.__name__, make.__qualname__}
    assert "resize" in lines[int(places[4][1]) - start]
    values = np.asarray(Image.open(path).convert("L").resize((12, 8), Image.Resampling.BICUBIC).crop((0, 0, 8, 8)))
    assert first["output"][0] == ["image", "tensor", [8, 8], "uint8", int(values.min()), int(values.max())]
    assert [(leaf[0], leaf[1]) for leaf in first["output"][1:]] == [
        ("high", "ndarray"),
        ("meta.0", "int"),
        ("meta.1", "str"),
        ("valid", "ndarray"),
    ]


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
    assert first["calls"][0][2]["samples"] == BATCH
    assert all(facts["inside"] == 0 for _, _, facts in first["calls"][1:])


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_archives_name_their_members(tmp_path: Path, folder: Path, kind: str) -> None:
    def from_tar(key: int) -> int:
        with tarfile.open(folder / "all.tar") as tar:
            member = tar.extractfile(f"{key}.png")
            assert member is not None
            return len(Image.open(io.BytesIO(member.read())).tobytes())

    def from_zip(key: int) -> int:
        with zipfile.ZipFile(folder / "all.zip") as archive:
            return len(Image.open(io.BytesIO(archive.read(f"{key}.png"))).tobytes())

    trace = Trace(tmp_path, Produced(from_tar if kind == "tar" else from_zip))
    (found,) = trace.facts("lookup:tarfile member" if kind == "tar" else "read:zipfile")
    expected = {
        "archive": str(folder / f"all.{kind}"),
        "member": "4.png",
        "bytes": (folder / "4.png").stat().st_size,
    }
    assert {name: found[name] for name in expected} == expected
    (opened,) = trace.facts("decode:Pillow open")
    assert opened["format"] == "PNG"
    assert "path" not in opened


def test_a_tokeniser_says_what_it_was_given(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.enable_truncation(5)
    trace = Trace(tmp_path, Produced(lambda key: tokenizer.encode("a b" * key).ids), collate_fn=list)
    (facts,) = trace.facts("tokenise:tokenizers encode")
    assert (facts["texts"], facts["first"]) == (1, "a ba ba ba b")
    assert facts["truncation"]["dict"]["max_length"] == 5


def test_what_a_stream_yields_is_looked_at_too(tmp_path: Path, folder: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            for key in range(3 * BATCH):
                yield {"__key__": f"sample {key}", "size": size_of(folder / f"{key}.png")}

    trace = Trace(tmp_path, Stream(), collate_fn=len)
    assert [one["key"] for one in trace.samples] == [f"'sample {key}'" for key in range(4, 12)]
    assert trace.facts("decode:Pillow open")[0]["path"] == str(folder / "4.png")


def test_samples_that_come_together_are_looked_at_one_by_one(tmp_path: Path, folder: Path) -> None:
    class Together(Produced):
        def __getitems__(self, keys: list[int]) -> list[Any]:
            return [self[key] for key in keys]

    trace = Trace(tmp_path, Together(lambda key: size_of(folder / f"{key}.png")), observe=False)
    assert [one["key"] for one in trace.samples] == [str(4 + key) for key in range(MOST_SAMPLES)]
    assert [leaf[:2] for leaf in trace.samples[0]["output"]] == [["0.0", "int"], ["0.1", "int"]]


def test_calls_are_bounded(tmp_path: Path) -> None:
    trace = Trace(tmp_path, Produced(lambda key: sum(random.random() for _ in range(2 * MOST_CALLS))))
    assert [len(one["calls"]) for one in trace.samples] == [MOST_CALLS] * MOST_SAMPLES


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


def test_a_function_that_the_script_holds_by_name_can_be_pickled(tmp_path: Path) -> None:
    trace = Trace(tmp_path, Produced(lambda key: (len(pickle.dumps(median)), float(np.quantile([key], 0.5)))))
    assert trace.facts("call:numpy.median") == []
    assert len(trace.facts("call:numpy.quantile")) == 1


def test_an_argument_that_the_library_refuses_stays_the_librarys_error(tmp_path: Path) -> None:
    def make(key: int) -> str:
        with pytest.raises(TypeError):
            picture(key).rotate()  # type: ignore[call-arg]
        return "text"

    trace = Trace(tmp_path, Produced(make))
    assert trace.facts("transform:Pillow rotate")[0]["failed"] == "TypeError"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, [("", "int", None, None, 3, 3)]),
        (True, [("", "bool", None, None, 1, 1)]),
        (float("nan"), [("", "float", None, None, None, None)]),
        (torch.tensor([True, False]), [("", "tensor", [2], "bool", 0, 1)]),
        (torch.zeros(0), [("", "tensor", [0], "float32", None, None)]),
        (np.float32([1, 2]), [("", "ndarray", [2], "float32", 1.0, 2.0)]),
        (np.array(["a"]), [("", "ndarray", [1], "str32", None, None)]),
        (Image.new("I;16", (3, 2)), [("", "PIL", [2, 3], "I;16", None, None)]),
        ({"a": {"b": b"12"}}, [("a.b", "bytes", [2], None, None, None)]),
        (UserDict(a=None), [("a", "None", None, None, None, None)]),
        ([], [("", "builtins.list", None, None, None, None)]),
        (object(), [("", "builtins.object", None, None, None, None)]),
    ],
    ids=lambda value: type(value).__name__,  # an address in a name would differ between xdist's workers
)
def test_leaves(value: Any, expected: list[Any]) -> None:
    assert leaves_of(value) == expected


def test_leaves_are_bounded() -> None:
    long = leaves_of(list(range(LONG_LIST + 1)))
    assert [leaf[0] for leaf in long] == ["", "0", "1", "2"]
    assert long[0] == ("", "list", [LONG_LIST + 1], None, None, None)
    assert len(leaves_of({str(key): [1] * 10 for key in range(60)})) == MOST_LEAVES
    inside: list[Any] = []
    inside.append(inside)
    assert len(leaves_of(inside)) == 1
    json.dumps(leaves_of([torch.tensor(float("inf")), 1 << 80]), allow_nan=False)


def test_modules_may_be_imported_while_they_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread: a garbage collection, whose callbacks are Python's, may let it run at any allocation."""

    def imported(phase: str, info: dict[str, int]) -> None:
        name = f"imported_{len(sys.modules)}"
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    threshold = gc.get_threshold()
    gc.callbacks.append(imported)
    gc.set_threshold(1)
    try:
        held = _held_by_the_user()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(imported)
    assert id(picture) in held
