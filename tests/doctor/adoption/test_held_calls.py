"""What a draft takes from live objects of a dataset: a tokenizer that makes the same tokens, and pictures in memory."""

from __future__ import annotations

import importlib
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset

from headrace.doctor.adoption.comparison import verified
from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.adoption.recipe import LoaderRecipe, module_text, write_files
from headrace.doctor.adoption.trial_process import stand_in_of
from headrace.doctor.explain.look import read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.probe.look.column_sources import held_pictures
from headrace.doctor.probe.look.value_look import look_at_values
from headrace.errors import SessionError

COUNT, LENGTH = 12, 9
WORDS = ["a", "bridge", "over", "the", "green", "river", "near", "two", "small", "boats"]
TOKENIZERS = """
import torch
class Words:
    def __init__(self, first=1):
        self.first = first
    def __call__(self, texts):
        texts = [texts] if isinstance(texts, str) else texts
        rows = torch.zeros(len(texts), 9, dtype=torch.long)
        for row, text in zip(rows, texts):
            ids = [self.first] + [len(word) + 2 for word in text.split()][:8]
            row[: len(ids)] = torch.tensor(ids)
        return rows
class Random(Words):
    def __call__(self, texts):
        return super().__call__(texts) + torch.randint(0, 100, (1, 9))
class Longest(Words):
    def __call__(self, texts):
        rows = super().__call__(texts)
        return rows[:, : int((rows > 0).sum(1).max())]
class Hidden(Words):
    def __init__(self, last):
        super().__init__(last + 1)
class Listing:
    def __call__(self, text):
        return [ord(letter) for letter in text.ljust(9)[:9]]
def function(texts):
    return Words(4)(texts)
shared = Words(7)
"""


class Pairs(Dataset[Any]):
    def __init__(self, folder: Path, tokenizer: Any, *, is_listed: bool) -> None:
        state = np.random.default_rng(0)
        self.files = [str(folder / f"{number}.png") for number in range(COUNT)]
        for file in self.files:
            Image.fromarray(state.integers(0, 256, (24, 24, 3), np.uint8)).save(file)
        self.captions = [" ".join(state.choice(WORDS, 2 + number % 5)) for number in range(COUNT)]
        self.tokenizer, self.is_listed = tokenizer, is_listed

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        image = torch.from_numpy(np.array(Image.open(self.files[index]))).permute(2, 0, 1).float() / 255
        text = self.captions[index]
        tokens = self.tokenizer([text])[0] if self.is_listed else torch.tensor(self.tokenizer(text))
        return {"image": image, "text": tokens}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Module of the script's own."""
    (tmp_path / "own_tokens.py").write_text(TOKENIZERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_tokens", raising=False)
    return importlib.import_module("own_tokens")


def recipe_of(data: Pairs, folder: Path) -> LoaderRecipe:
    look_at_values(DataLoader(data), str(folder / "look"))
    look = read_look(folder / "look")
    return explained_recipe(look, explain_look(look))


@pytest.mark.parametrize(
    ("made", "statement"),
    [
        ("Words()", "Words"),
        ("shared", "shared"),
        ("function", "function"),
        ("Listing()", "Listing"),
    ],
)
def test_a_tokenizer_is_imported_and_makes_the_tokens(made: str, statement: str, own: Any, tmp_path: Path) -> None:
    data = Pairs(tmp_path, eval(made, vars(own)), is_listed=statement != "Listing")
    recipe = recipe_of(data, tmp_path)
    assert recipe.left == {}
    assert f"from own_tokens import {statement}" in recipe.imports
    assert recipe.folders == (str(tmp_path),)
    draft = ModuleType("draft")
    exec(module_text(recipe, write_files(recipe, tmp_path)), vars(draft))
    loader = draft.make_loader(5)
    tokens = np.concatenate([batch["text"].numpy() for batch in draft.batches(loader)])
    assert tokens.tolist() == [data[index]["text"].tolist() for index in range(COUNT)]


@pytest.mark.parametrize("made", ["Random()", "Longest()", "lambda texts: torch.rand(len(texts), 9)"])
def test_other_tokens_on_a_second_call_or_of_another_length_are_left(made: str, own: Any, tmp_path: Path) -> None:
    recipe = recipe_of(Pairs(tmp_path, eval(made, vars(own)), is_listed=True), tmp_path)
    assert list(recipe.left) == ["text"]
    assert "image" in recipe.covered


@pytest.mark.parametrize(("made", "is_listed"), [("Hidden(5)", True), ("lambda text: Listing()(text)", False)])
def test_a_tokenizer_that_cannot_be_remade_is_an_argument(made: str, is_listed: bool, own: Any, tmp_path: Path) -> None:
    data = Pairs(tmp_path, eval(made, vars(own)), is_listed=is_listed)
    recipe = recipe_of(data, tmp_path)
    assert (recipe.left, list(recipe.arguments)) == ({}, ["tokenizer"])
    assert [part.certainty for part in recipe.parts if part.part == "text"] == ["check"]
    draft = ModuleType("draft")
    exec(module_text(replace(recipe, script=("train.py",)), write_files(recipe, tmp_path)), vars(draft))
    assert "headrace equal" not in (draft.__doc__ or "")  # it would have no object to pass
    with pytest.raises(TypeError, match="tokenizer="):
        draft.make_dataloader()
    loader = draft.make_loader(5, tokenizer=data.tokenizer)
    tokens = np.concatenate([batch["text"].numpy() for batch in draft.batches(loader)])
    assert tokens.tolist() == [data[index]["text"].tolist() for index in range(COUNT)]


def test_a_trial_answers_for_the_argument(own: Any, tmp_path: Path) -> None:
    data = Pairs(tmp_path, own.Hidden(5), is_listed=True)
    recipe = recipe_of(data, tmp_path)
    look = read_look(tmp_path / "look")
    answer = stand_in_of(look, recipe.arguments["tokenizer"])
    draft = ModuleType("draft")
    exec(module_text(recipe, write_files(recipe, tmp_path)), vars(draft))
    compared = verified(look, partial(draft.make_loader, tokenizer=answer), draft.batches)
    assert compared["text"] == "same"
    assert np.array(answer(["of no sample"])).tolist() == [[0] * LENGTH]
    began = time.perf_counter()
    answer(["", ""])
    assert time.perf_counter() - began >= 2e-6 * look.calls[0].text_us > 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"name": "Words"', b'"name": "W;pwn"'),
        (b'{"first": 123456}', b'{"f;pwn": 12345}'),
        (b'{"first": 123456}', b'{"first":["pwn"]}'),
    ],
)
def test_a_name_that_is_code_is_refused(before: bytes, after: bytes, own: Any, tmp_path: Path) -> None:
    look = tmp_path / "look"
    look_at_values(DataLoader(Pairs(tmp_path, own.Words(123456), is_listed=True)), str(look))
    content = look.read_bytes()
    assert content.count(before) == 1  # of the captions, and not of the files
    look.write_bytes(content.replace(before, after))
    with pytest.raises(SessionError, match="pwn"):
        read_look(look)


def test_only_what_the_dataset_calls_is_called(own: Any, tmp_path: Path) -> None:
    called: list[Any] = []
    data = Pairs(tmp_path, own.Words(), is_listed=True)
    data.remove = _remover(called)  # type: ignore[attr-defined]
    assert recipe_of(data, tmp_path).left == {}
    assert called == []


def _remover(called: list[Any]) -> Any:
    class Remover:
        def __call__(self, path: str) -> None:
            called.append(path)

    return Remover()


COUNT = 20


class Memory(Dataset[Any]):
    def __init__(self, shape: tuple[int, ...], *, as_tensor: bool = False) -> None:
        state = np.random.default_rng(0)
        data = np.kron(
            state.integers(0, 256, (COUNT, *(side // 4 for side in shape[:2]), *shape[2:])),
            np.ones((4, 4)) if len(shape) == 2 else np.ones((4, 4, 1)),
        )
        self.data = torch.from_numpy(data.astype(np.uint8)) if as_tensor else data.astype(np.uint8)
        self.targets = [number % 3 for number in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        pixels = np.asarray(self.data[index]).reshape(*self.data.shape[1:3], -1)
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255, self.targets[index]


@pytest.mark.parametrize(("shape", "as_tensor"), [((32, 28, 3), False), ((28, 28), True)], ids=["colours", "grey"])
@pytest.mark.parametrize("indices", [None, [3, 5, 8, 13, 2]], ids=["all", "subset"])
def test_pictures_in_memory_are_files(
    shape: tuple[int, ...], as_tensor: bool, indices: list[int] | None, tmp_path: Path
) -> None:
    memory = Memory(shape, as_tensor=as_tensor)
    dataset = memory if indices is None else Subset(memory, indices)
    look_at_values(DataLoader(dataset), str(tmp_path / "look"))
    look = read_look(tmp_path / "look")
    recipe = explained_recipe(look, explain_look(look))
    assert recipe.left == {}
    files = recipe.columns["image__path"]
    assert len(files) == len(dataset)  # type: ignore[arg-type]
    assert all(bytes(file).startswith(b"\x89PNG") for file in files)
    assert list(recipe.columns["label"]) == [memory.targets[index] for index in indices or range(COUNT)]


def test_only_arrays_of_bytes_a_picture_a_sample_are_held() -> None:
    assert held_pictures(Memory((28, 28)), COUNT) is not None
    for other in (np.zeros((COUNT, 8, 8)), np.zeros((COUNT - 1, 8, 8), np.uint8), np.zeros((COUNT, 8), np.uint8)):
        memory = Memory((28, 28))
        memory.data = other
        assert held_pictures(memory, COUNT) is None
