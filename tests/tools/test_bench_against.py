"""`headrace bench --against`: a loader of the user's own, in a process of its own beside ours."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_bench import HERE, SETTINGS, run, shown

from headrace.compare import batch_size_of
from headrace.errors import HeadraceError, UsageError
from headrace.tools.bench.against import against_batch_sizes, check_name
from headrace.tools.bench.comparison import METRICS, BenchResult, available_images
from headrace.tools.bench.runs import run_rounds
from headrace.tools.bench.settings import BenchSettings, window

LOADER = """
import sys
from torch.utils.data import DataLoader, TensorDataset
import torch

print("a word on standard output")


def make_loader(path, batch_size, *, num_workers, seed):
    print(path, batch_size, num_workers, seed, file=sys.stderr)
    return DataLoader(TensorDataset(torch.zeros(64, 3)), batch_size=batch_size)


def nothing():
    return []


def once():
    return iter([torch.zeros(4)])


def empty_batches():
    return [torch.zeros(0, 3)]


def odd_batches():
    return [object()]


def raises():
    raise ValueError("no such folder: photos")


def raises_later():
    yield torch.zeros(4)
    raise ValueError("sample 4 is broken")


def number():
    return 5


text = "a text"
"""


@pytest.fixture
def yours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a loader in the current folder."""
    (tmp_path / "my_loaders.py").write_text(LOADER)
    (tmp_path / "lacking.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(name: str, *, path: str = "photos") -> BenchSettings:
    return BenchSettings(path=path, threads=1, batch_size=8, rounds=1, images=16, against=name)


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(7, 3, 2), 7),
        (np.zeros((5, 2)), 5),
        ([torch.zeros(4, 3), torch.zeros(4)], 4),
        ((["a.jpg", "b.jpg", "c.jpg"], torch.zeros(3)), 3),
        ({"name": "train", "image": torch.zeros(6, 3)}, 6),
        ({"text": {"ids": torch.zeros(9, 77), "mask": torch.zeros(9, 77)}}, 9),
        (["one text", "another"], 2),
        ([torch.tensor(1), torch.tensor(2), torch.tensor(3)], 3),
        (({"boxes": [1, 2]}, {"boxes": [3, 4]}), 2),
        ([], 0),
        (torch.zeros(0, 3), 0),
        (torch.tensor(1.0), None),
        ({}, None),
        ("a text", None),
        (SimpleNamespace(image=torch.zeros(3)), None),
    ],
)
def test_finds_how_many_samples_a_batch_has(batch: Any, size: int | None) -> None:
    assert batch_size_of(batch) == size


def test_a_batch_of_a_class_of_its_own_has_a_len() -> None:
    class Batch:
        def __len__(self) -> int:
            return 11

    assert batch_size_of(Batch()) == 11


@pytest.mark.parametrize("name", ["train", "train:", ":make", "train.2:make", "a b:make", "train:make loader"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--against: expected module:function, as in train:make_loader, got"):
        check_name(name)


def test_its_function_gets_what_it_asks_for(yours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = against_batch_sizes(replace(settings("my_loaders:make_loader"), seed=3), 2)
    assert [next(sizes) for _ in range(20)] == [8] * 20, "expected it to begin again after eight batches"
    assert "photos 8 1 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "no_such_module:make",
            r"expected a module no_such_module that can be imported from .*, and there is none",
        ),
        (
            "my_loaders:no_such",
            r"expected a function no_such in .*my_loaders.py, .* It has: empty_batches, make_loader",
        ),
        ("my_loaders:text", r"expected a function that makes a loader, got a str. Wrap it in one"),
        ("my_loaders:number", r"expected something to iterate over, got a int. Return the loader itself"),
        ("my_loaders:nothing", r"expected batches, and its loader gave none"),
        ("my_loaders:once", r"expected batches, .* A generator can be iterated once only: return what"),
        ("my_loaders:empty_batches", r"expected samples in batch 0, got no sample"),
        ("my_loaders:odd_batches", r"expected samples in batch 0, got a object, in which no tensor, array or list"),
    ],
)
def test_what_is_no_loader_is_named_with_what_to_do(name: str, text: str, yours: Path) -> None:
    sizes = against_batch_sizes(settings(name), 0)
    with pytest.raises(HeadraceError, match=f"--against {name}: {text}"):
        list(zip(range(3), sizes, strict=False))


def test_a_module_that_lacks_something_itself_says_what(yours: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        next(against_batch_sizes(settings("lacking:make"), 0))


def test_a_module_that_exits_when_it_is_imported_is_named(yours: Path) -> None:
    (yours / "program.py").write_text("import argparse\nask = argparse.ArgumentParser()\nask.add_argument('path')\n"
                                      "ask.parse_args([])\n")  # fmt: skip
    with pytest.raises(HeadraceError, match=r"--against program:make: expected a module that can be imported"):
        next(against_batch_sizes(settings("program:make"), 0))


@pytest.mark.long
def test_its_own_error_is_shown_with_where_it_was_raised(yours: Path) -> None:
    with pytest.raises(HeadraceError) as raised:
        available_images(settings("my_loaders:raises"))
    first, *rest = str(raised.value).splitlines()
    assert first == "the run of your loader ended with exit code 1: ValueError: no such folder: photos"
    assert any("my_loaders.py" in line and "in raises" in line for line in rest)


@pytest.mark.long
def test_an_error_of_ours_is_one_line(yours: Path) -> None:
    with pytest.raises(HeadraceError) as raised:
        available_images(settings("my_loaders:nothing"))
    assert str(raised.value).startswith("--against my_loaders:nothing: expected batches")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.long
def test_both_loaders_run(photos: Path, yours: Path) -> None:
    asked = settings("my_loaders:make_loader", path=str(photos))
    runs = dict(run_rounds(asked))
    assert list(runs) == ["headrace", "yours"]
    assert runs["yours"].images == 8 * window(asked).counted
    assert runs["yours"].wall_s > 0


@pytest.mark.long
def test_the_example_of_the_docs_is_a_loader(photos: Path, yours: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "benchmarks.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (yours / "of_the_docs.py").write_text(example)
    sizes = against_batch_sizes(settings("of_the_docs:make_loader", path=str(photos)), 0)
    assert [next(sizes) for _ in range(9)] == [8] * 7 + [4, 8]
    sizes.close()  # type: ignore[attr-defined]
    sys.modules.pop("of_the_docs")


@pytest.mark.long
def test_an_error_in_a_later_round_is_shown(photos: Path, yours: Path) -> None:
    asked = settings("my_loaders:raises_later", path=str(photos))
    assert available_images(asked) == 60
    with pytest.raises(HeadraceError, match="ValueError: sample 4 is broken"):
        list(run_rounds(asked))


class TestReport:
    @staticmethod
    def result() -> BenchResult:
        runs = [("headrace", run(2000)), ("yours", run(400)), ("headrace", run(2200)), ("yours", run(500))]
        asked = replace(SETTINGS, rounds=2, against="train:make_loader")
        return BenchResult(settings=asked, environment=HERE, available=100, runs=runs)

    def test_the_verdict_names_it(self) -> None:
        assert self.result().verdict == "Headrace: 4.7 × train:make_loader at 2 cores"

    def test_says_that_the_work_is_theirs(self) -> None:
        text = " ".join(shown(self.result()).split())
        assert "Yours: what train:make_loader gives; whether it is the same work is for you to say." in text
        assert "torch + Pillow" not in text

    def test_fits_a_terminal_of_80_columns(self) -> None:
        table = [line for line in shown(self.result(), width=80).splitlines() if line.startswith(("┃", "│"))]
        assert len(table) == 1 + len(METRICS), "expected no cell to wrap"

    def test_the_document_has_its_runs(self) -> None:
        document = json.loads(json.dumps(self.result().document()))
        assert set(document["median"]) == {"headrace", "yours"}
        assert document["settings"]["against"] == "train:make_loader"
        assert document["gain"]["images_per_s"] == pytest.approx(2100 / 450)
