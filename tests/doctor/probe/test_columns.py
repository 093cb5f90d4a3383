"""Columns that a live dataset holds: found wherever they are, joined as datasets are, by no code of the user's."""

from __future__ import annotations

import random
import sys
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

from headrace.doctor.probe.look.column_sources import Column
from headrace.doctor.probe.look.columns import ColumnBudget, found_columns

PATHS = [f"{name}/{number:03}.jpg" for number, name in enumerate(["cat", "dog", "elk"] * 4)]
LABELS = [0, 1, 2] * 4
COUNT = len(PATHS)
Item = namedtuple("Item", "image label")


@dataclass
class Record:
    image: str
    box: list[float]


class Slotted:
    __slots__ = ("image", "unset")

    def __init__(self, image: str) -> None:
        self.image = image


class Holding(Dataset[Any]):
    """A dataset that holds what it is given."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a sample was made")


class Sized(Holding):
    def __init__(self, length: int = COUNT, **held: Any) -> None:
        super().__init__(**held)
        self._length = length

    def __len__(self) -> int:
        return self._length


class ImageFolder(Sized):
    """Holds what torchvision's does."""

    def __init__(self, paths: list[str] = PATHS) -> None:
        self.root = "/data"
        self.classes = sorted({path.split("/")[0] for path in paths})
        self.class_to_idx = {name: place for place, name in enumerate(self.classes)}
        self.samples = [(f"/data/{path}", self.class_to_idx[path.split("/")[0]]) for path in paths]
        self.imgs = self.samples
        self.targets = [target for _, target in self.samples]
        self._length = len(paths)


def columns_of(dataset: Any, length: int = COUNT) -> dict[str, Column]:
    budget = ColumnBudget(seconds=20)
    found = found_columns(dataset, length, budget)
    assert not budget.is_spent
    assert len({column.name for column in found}) == len(found)
    return {column.name: column for column in found}


def values_of(dataset: Any, length: int = COUNT) -> dict[str, list[Any]]:
    found = {name: list(chain.from_iterable(one.chunks())) for name, one in columns_of(dataset, length).items()}
    assert all(len(values) == length for values in found.values())
    return found


TABLE = pd.DataFrame({"path": PATHS, "caption": [f"a {path}" for path in PATHS], "score": np.arange(COUNT) / 4})
STRUCTURED = np.array(list(zip(PATHS, LABELS, strict=True)), dtype=[("path", "U20"), ("label", "i4")])
ARROW = pa.table({"image": [{"path": path, "bytes": b"\xff\xd8" * 50} for path in PATHS], "label": LABELS})


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"files": PATHS}, {"files": PATHS}),
        ({"files": [Path(path) for path in PATHS]}, {"files": PATHS}),
        ({"files": [path.encode() for path in PATHS]}, {"files": PATHS}),
        ({"files": tuple(PATHS), "flags": [True] * COUNT}, {"files": PATHS, "flags": [True] * COUNT}),
        ({"samples": list(zip(PATHS, LABELS, strict=True))}, {"samples[0]": PATHS, "samples[1]": LABELS}),
        ({"rows": [[path, str(label)] for path, label in zip(PATHS, LABELS, strict=True)]}, {"rows[0]": PATHS}),
        ({"items": [Item(path, 1) for path in PATHS]}, {"items.image": PATHS, "items.label": [1] * COUNT}),
        ({"items": [Record(path, [0.0, 1.5]) for path in PATHS]}, {"items.image": PATHS, "items.box": [[0, 1.5]] * 12}),
        ({"items": [Slotted(path) for path in PATHS]}, {"items.image": PATHS}),
        ({"rows": [{"image": {"path": path}, "id": 3} for path in PATHS]}, {"rows.image.path": PATHS}),
        ({"data": {"image": PATHS, "label": LABELS}}, {"data.image": PATHS, "data.label": LABELS}),
        ({"by_number": dict(enumerate(PATHS))}, {"by_number": PATHS}),
        ({"labels": np.array(LABELS), "names": np.array(PATHS)}, {"labels": LABELS, "names": PATHS}),
        ({"names": np.array([path.encode() for path in PATHS])}, {"names": PATHS}),
        ({"names": np.array(PATHS, object)}, {"names": PATHS}),
        ({"array": STRUCTURED}, {"array.path": PATHS, "array.label": LABELS}),
        ({"boxes": np.ones((COUNT, 4), np.float32)}, {"boxes": [[1.0] * 4] * COUNT}),
        ({"labels": torch.tensor(LABELS)}, {"labels": LABELS}),
        ({"labels": [torch.tensor(label) for label in LABELS]}, {"labels": LABELS}),
        ({"weights": torch.ones(COUNT, dtype=torch.bfloat16)}, {"weights": [1.0] * COUNT}),
        ({"df": TABLE}, {name: list(TABLE[key]) for key, name in (("path", "df.path"), ("score", "df.score"))}),
        ({"rows": TABLE.values}, {"rows[0]": PATHS, "rows[2]": list(TABLE.score)}),
        ({"df": TABLE.set_index("path")}, {"df.index": PATHS}),
        ({"series": TABLE.caption}, {"series": list(TABLE.caption)}),
        ({"kinds": pd.Series(PATHS).astype("category")}, {"kinds": PATHS}),
        ({"gaps": pd.Series([None, 1, 2] * 4, dtype="Int64")}, {"gaps": [None, 1, 2] * 4}),
        ({"table": ARROW}, {"table.image.path": PATHS, "table.label": LABELS}),
        ({"column": pa.chunked_array([PATHS[:5], PATHS[5:]])}, {"column": PATHS}),
        ({"tokens": pa.array([[1, 2], [3]] * 6)}, {"tokens": [[1, 2], [3]] * 6}),
        ({"holder": SimpleNamespace(inner=SimpleNamespace(files=PATHS))}, {"holder.inner.files": PATHS}),
        (
            {"lines": [f"{path} depth/{number}.png 51{number}.5\n" for number, path in enumerate(PATHS)]},
            {"lines.strip()[0]": PATHS, "lines.strip()[2] as number": [float(f"51{n}.5") for n in range(COUNT)]},
        ),
        ({"lines": [f"{path}\ta cat, {number}" for number, path in enumerate(PATHS)]}, {"lines[0]": PATHS}),
        ({"ranks": range(3, COUNT + 3)}, {"ranks": list(range(3, COUNT + 3))}),
    ],
    ids=lambda value: ",".join(value),
)
def test_what_a_dataset_holds(held: dict[str, Any], expected: dict[str, list[Any]]) -> None:
    found = values_of(Sized(**held))
    assert {name: found.get(name) for name in expected} == expected


def test_values_are_plain() -> None:
    found = values_of(Sized(a=np.ones(COUNT, np.float32), b=np.array(PATHS), c=[np.int64(1)] * COUNT, d=TABLE))
    assert {type(value) for values in found.values() for value in values} == {str, int, float}


@pytest.mark.parametrize(
    "held",
    [
        {"short": PATHS[:5], "long": PATHS * 2},
        {"images": np.zeros((COUNT, 8, 8))},
        {"images": [np.zeros((8, 8))] * COUNT, "tensors": [torch.zeros(3, 4)] * COUNT},
        {"blobs": [b"\xff\xd8\xff" * 10] * COUNT, "objects": [object()] * COUNT},
        {"missing": [None] * COUNT, "mixed": [*PATHS[:-1], object()]},
        {"texts": ["a" * (1 << 17)] * COUNT},
        {"complex": torch.ones(COUNT, dtype=torch.complex64), "grid": np.zeros((COUNT, 10_000))},
        {"blob": pa.array([b"\xff" * (1 << 17)] * COUNT)},
    ],
    ids=lambda value: ",".join(value),
)
def test_what_is_no_column(held: dict[str, Any]) -> None:
    assert values_of(Sized(**held)) == {}


def test_a_library_that_may_not_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    assert values_of(Sized(files=PATHS)) == {"files": PATHS}


def test_one_sequence_under_two_names_is_one_column() -> None:
    assert set(columns_of(ImageFolder())) == {"samples[0]", "samples[1]", "targets"}


def test_a_dataset_that_is_a_list_itself() -> None:
    assert set(columns_of(list(zip(PATHS, LABELS, strict=True)))) == {"dataset[0]", "dataset[1]"}
    assert values_of(PATHS) == {"dataset": PATHS}
    assert values_of([{"image": path} for path in PATHS]) == {"image": PATHS}


def test_a_dataset_of_hugging_face_in_its_own_order_undecoded(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    images = [str(tmp_path / path) for path in PATHS]  # none of which exists
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    whole = datasets.Dataset.from_dict({"image": images, "label": LABELS}, features=features)
    assert values_of(whole)["image.path"] == images
    shuffled = whole.shuffle(seed=3)
    order = shuffled._indices.column(0).to_pylist()
    assert order != sorted(order)
    assert values_of(shuffled)["image.path"] == [images[index] for index in order]
    assert values_of(Sized(hf=shuffled.select(range(5))), 5)["hf.label"] == [LABELS[index] for index in order[:5]]
    joined = datasets.concatenate_datasets([whole, shuffled])
    assert values_of(joined, 2 * COUNT)["label"] == LABELS + [LABELS[index] for index in order]


@pytest.mark.parametrize(
    "indices",
    [[5, 3, 3, 0], range(2, 6), np.array([5, 3, 3, 0]), torch.tensor([5, 3, 3, 0]), (1, 2)],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "held", [PATHS, TABLE.path, np.array(PATHS), pa.array(PATHS)], ids=lambda value: type(value).__name__
)
def test_subsets_by_any_indices(indices: Any, held: Any) -> None:
    expected = [PATHS[index] for index in indices]
    assert values_of(Subset(Sized(files=held), indices), len(indices))["files"] == expected


def test_a_subset_of_the_scripts_own() -> None:
    picks = [7, 1, 4]
    found = values_of(Holding(df=TABLE, train_idx=picks), 3)
    assert found["df.caption"] == [TABLE.caption[index] for index in picks]


def test_datasets_joined_where_all_have_the_column() -> None:
    folder = ImageFolder(PATHS[:4])
    folder.extra = [1.5] * 4
    found = values_of(ConcatDataset([folder, ImageFolder(PATHS[4:]), Sized(0)]))
    assert found["samples[0]"] == [f"/data/{path}" for path in PATHS]
    assert not any("extra" in name for name in found)


def test_subsets_and_joins_within_each_other() -> None:
    folder = ImageFolder()
    joined = ConcatDataset([Subset(folder, [3, 1]), Subset(folder, [0]), Subset(ConcatDataset([folder, folder]), [20])])
    nested = Subset(joined, [3, 0, 0, 2])
    expected = [f"/data/{PATHS[index]}" for index in (20 - COUNT, 3, 3, 0)]
    assert values_of(nested, 4)["samples[0]"] == expected


def test_wrappers_hold_what_their_inner_datasets_do() -> None:
    wrapped = Sized(whatever=Sized(4, of=Subset(ImageFolder(), [3, 2, 1, 0])), transform=len)
    assert values_of(wrapped, 4)["whatever.of.targets"] == [0, 2, 1, 0]
    stacked = StackDataset(image=Sized(files=PATHS), label=TensorDataset(torch.tensor(LABELS)))
    assert values_of(stacked) == {"datasets.image.files": PATHS, "datasets.label.tensors[0]": LABELS}


def test_dicts_by_the_values_of_a_column() -> None:
    ids = [f"p{number}" for number in range(COUNT)]
    images = {name: {"file_name": path} for name, path in zip(reversed(ids), reversed(PATHS), strict=True)}
    found = values_of(Sized(ids=ids, coco=SimpleNamespace(imgs=images), numbers=dict.fromkeys(PATHS[::2], 7)))
    assert found == {"ids": ids, "coco.imgs[ids].file_name": PATHS}
    names = [path.split("/")[0] for path in PATHS]
    found = values_of(Sized(df=pd.DataFrame({"name": names}), class_to_idx={"elk": 5, "dog": 7, "cat": 6}))
    assert found == {"df.name": names, "class_to_idx[df.name]": [6, 7, 5] * 4}


class Hostile:
    """Fails, hangs or draws, whichever way it is asked."""

    def __init__(self, **held: Any) -> None:
        state = object.__getattribute__(self, "__dict__")
        state.update(held, me=self, around=[self, {"again": self}])

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    def __getattr__(self, name: str) -> Any:
        return random.random()

    @property
    def files(self) -> Any:
        raise AssertionError("ran a property")

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield torch.rand(1)

    def __len__(self) -> int:
        return 1 << 80

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("made a sample")

    __eq__ = __hash__ = __bool__ = __repr__ = __getitem__  # type: ignore[assignment]


class Lying(list[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("ran its own code")

    __iter__ = __getitem__  # type: ignore[assignment]


class Computed:
    """Holds an attribute that its class's property hides."""

    def __init__(self, number: int) -> None:
        vars(self).update(number=number, path="held")

    @property
    def path(self) -> str:
        raise AssertionError("ran a property")

    @path.setter
    def path(self, value: str) -> None: ...


def test_no_code_of_the_users_runs() -> None:
    state = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    found = values_of(Hostile(held=PATHS, indices=[1] * COUNT, wrong=Lying([1]), right=Lying(PATHS), within=Hostile()))
    assert (found["held"], found["right"]) == (PATHS, PATHS)
    assert not any("wrong" in name or "within" in name for name in found)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == (state[0], state[2])  # type: ignore[index,union-attr]
    assert torch.equal(torch.get_rng_state(), state[1])
    assert set(columns_of(Sized(rows=[Computed(number) for number in range(COUNT)]))) == {"rows.number"}


def test_datasets_that_hold_each_other() -> None:
    inner = Sized(files=PATHS)
    outer = Subset(inner, range(COUNT - 1, -1, -1))
    inner.parent, inner.all = outer, ConcatDataset([outer])
    assert values_of(outer)["files"] == PATHS[::-1]


def test_a_search_ends_with_its_budget() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep] * 200
    crowd = Sized(deep=deep, **{f"a{number}": SimpleNamespace(b=[{}] * 200) for number in range(200)}, files=PATHS)
    budget = ColumnBudget(objects=100)
    found_columns(crowd, COUNT, budget)
    assert budget.is_spent
    budget = ColumnBudget(seconds=0)
    assert found_columns(Sized(files=PATHS), COUNT, budget) == []
    assert budget.is_spent


def test_huge_containers_of_other_lengths_are_not_read() -> None:
    huge = np.zeros(1 << 20, np.uint8)
    held = Sized(files=PATHS, numbers=range(1 << 60), many=[0] * (1 << 20), by_name=dict.fromkeys(range(1 << 20)))
    held.mapped = np.lib.stride_tricks.as_strided(huge, (1 << 50,), (0,))
    assert set(columns_of(held)) == {"files"}


class Captions(Holding):
    def __init__(self, df: pd.DataFrame) -> None:
        super().__init__(df=df)

    def __len__(self) -> int:
        return len(self.df)
