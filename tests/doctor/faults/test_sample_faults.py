"""Planted faults of lists, orders and padding are found, in forms that people write; correct ones raise no alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_samples import COUNT, Samples, classified, codes_of, labels_of, normalised, opened
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SequentialSampler, Subset


def in_order(samples: Samples) -> Samples:
    samples.targets.sort()
    return samples


def listed_twice(samples: Samples) -> Samples:
    for column in (samples.paths, samples.masks, samples.names, samples.targets):
        column[-2:] = column[:2]
    return samples


def globbed_twice(samples: Samples) -> Samples:
    for column in (samples.paths, samples.masks, samples.names, samples.targets):
        column[30:] = column[:30]
    return samples


class Records(Dataset):
    """Rows of a list, as datasets in the form of ImageFolder hold them."""

    def __init__(self, samples: Samples, rows: list[int]) -> None:
        self.samples, self.inner = [(samples.paths[row], samples.targets[row] + row) for row in rows], samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, target = self.samples[index]
        with Image.open(path) as picture:
            return normalised(np.asarray(picture.resize((66, 48), Image.Resampling.BILINEAR))), target


def next_sample(samples: Samples, index: int) -> Any:
    try:
        return classified(samples, index)
    except (OSError, ValueError):
        return samples[(index + 1) % COUNT]


def first_sample(samples: Samples, index: int) -> Any:
    try:
        return classified(samples, index)
    except Exception:
        return classified(samples, 3)


def any_other_sample(samples: Samples, index: int) -> Any:
    try:
        return {"image": normalised(opened(samples, index)), "mask": labels_of(samples, index)}
    except OSError:
        return any_other_sample(samples, torch.randint(1, COUNT, ()).item())


def mixed_pair(samples: Samples, index: int) -> Any:
    other = torch.randint(COUNT, ()).item()
    return (normalised(opened(samples, index)) + normalised(opened(samples, other))) / 2, samples.targets[index]


def permuted(samples: Samples, index: int) -> Any:
    return classified(samples, (index * 7 + 5) % COUNT)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("make", "breaks", "codes"),
    [
        (next_sample, "truncated", ["substituted-sample"]),
        (first_sample, "missing", ["substituted-sample"]),
        (any_other_sample, "truncated", ["substituted-sample"]),
        (next_sample, "", []),
        (any_other_sample, "", []),
        (mixed_pair, "", []),
        (permuted, "", []),
    ],
)
def test_a_sample_that_another_takes_the_place_of(
    make: Any, breaks: str, codes: list[str], folder: Path, tmp_path: Path
) -> None:
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((66, 48), Image.Resampling.BICUBIC).save(tmp_path / f"{number}.png")
    samples = Samples(tmp_path, make)
    samples.paths = [str(tmp_path / f"{number}.png") for number in range(COUNT)]
    samples.masks = [str(folder / f"labels{number % 12}.png") for number in range(COUNT)]
    first = Path(samples.paths[0])
    if breaks == "truncated":
        first.write_bytes(first.read_bytes()[:200])
    elif breaks == "missing":
        first.unlink()
    assert codes_of(DataLoader(samples, batch_size=6, shuffle=True), tmp_path) == codes


class ShuffledBatches(Sampler):
    """Batch sampler of a script; torch gives such a loader a sequential sampler, which nothing uses."""

    def __len__(self) -> int:
        return COUNT // 6

    def __iter__(self) -> Iterator[list[int]]:
        yield from torch.randperm(COUNT).reshape(-1, 6).tolist()


def batched(size: int, *, drop_last: bool) -> dict[str, Any]:
    return {"batch_size": 1, "batch_sampler": BatchSampler(SequentialSampler(range(COUNT)), size, drop_last)}


@pytest.mark.one_in(18)
@pytest.mark.parametrize(
    ("change", "options", "codes"),
    [
        (in_order, {}, ["class-order"]),
        (in_order, {"shuffle": True}, []),
        (in_order, {"batch_size": 1, "batch_sampler": ShuffledBatches()}, []),
        (lambda samples: Subset(in_order(samples), range(55)), {}, ["class-order"]),
        (listed_twice, {"shuffle": True}, ["duplicate-files"]),
        (globbed_twice, {"shuffle": True}, ["duplicate-files"]),
        (lambda samples: Records(samples, [*range(12), *range(12)]), {"shuffle": True}, ["duplicate-files"]),
        (lambda samples: Records(samples, list(range(24))), {"shuffle": True}, []),
        (lambda samples: samples, {"batch_size": 7, "drop_last": True}, ["never-visited"]),
        (lambda samples: Subset(samples, range(0, 55, 2)), {"drop_last": True}, ["never-visited"]),
        (lambda samples: samples, batched(7, drop_last=True), ["never-visited"]),
        (lambda samples: samples, batched(7, drop_last=False), []),
        (lambda samples: samples, batched(6, drop_last=True), []),
        (lambda samples: samples, {"batch_size": 7, "drop_last": True, "shuffle": True}, []),
        (lambda samples: samples, {"batch_size": 6, "drop_last": True}, []),
    ],
)
def test_the_order_and_the_list_of_samples(change: Any, options: Any, codes: Any, folder: Path, tmp_path: Path) -> None:
    loader = DataLoader(change(Samples(folder, classified)), **{"batch_size": 6, **options})
    assert codes_of(loader, tmp_path) == codes


LENGTH, TEXTS = 12, ["the cat sat", "a dog", "one bird flew over the house", "fish", "two cats", "an owl and a fox"]


def words_of(text: str) -> list[int]:
    return [2 + sum(map(ord, word)) % 97 for word in text.split()]


def padded_by_hand(text: str, pad_id: int = 0) -> list[int]:
    ids = [*words_of(text), 1]
    return ids + [pad_id] * (LENGTH - len(ids))


class Texts(Dataset):
    """Texts whose tokens one function makes."""

    def __init__(self, make: Callable[[Texts, str], Any]) -> None:
        words = sorted({word for text in TEXTS for word in text.split()})
        vocabulary = {word: number for number, word in enumerate(["[PAD]", *words])}
        self.tokenizer = Tokenizer(WordLevel(vocabulary, "[PAD]"))
        self.tokenizer.pre_tokenizer = Whitespace()
        self.tokenizer.enable_padding(length=LENGTH)
        self.make, self.texts = make, [f"{TEXTS[number % 6]} {TEXTS[number // 6]}" for number in range(36)]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        return self.make(self, self.texts[index])


def by_tokenizer(texts: Texts, text: str) -> Any:
    encoded = texts.tokenizer.encode(text)
    return {"input_ids": torch.tensor(encoded.ids), "attention_mask": torch.ones(LENGTH, dtype=torch.long)}


def by_tokenizer_with_its_mask(texts: Texts, text: str) -> Any:
    encoded = texts.tokenizer.encode(text)
    return {"input_ids": torch.tensor(encoded.ids), "attention_mask": torch.tensor(encoded.attention_mask)}


def by_hand(texts: Texts, text: str) -> Any:
    return torch.tensor(padded_by_hand(text)), torch.ones(LENGTH), len(text) % 2


def in_a_row(texts: Texts, text: str) -> Any:
    """As `return_tensors="pt"` gives it, with the end-of-text token as padding."""
    ids = torch.tensor(padded_by_hand(text, pad_id=99))[None]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def at_the_left(texts: Texts, text: str) -> Any:
    """As decoders are padded for generation."""
    ids = torch.tensor(padded_by_hand(text)[::-1])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def at_the_left_with_a_mask(texts: Texts, text: str) -> Any:
    ids = torch.tensor(padded_by_hand(text)[::-1])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def by_hand_with_a_mask(texts: Texts, text: str) -> Any:
    ids = np.array(padded_by_hand(text))
    return ids, ids != 0, len(text) % 2


def whole_windows(texts: Texts, text: str) -> Any:
    ids = torch.tensor((words_of(text) * LENGTH)[:LENGTH])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def weighed(texts: Texts, text: str) -> Any:
    return torch.tensor(padded_by_hand(text)), torch.ones(3), torch.full((LENGTH,), -100)


@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (by_tokenizer, ["attended-padding"]),
        (by_hand, ["attended-padding"]),
        (in_a_row, ["attended-padding"]),
        (at_the_left, ["attended-padding"]),
        (at_the_left_with_a_mask, []),
        (by_tokenizer_with_its_mask, []),
        (by_hand_with_a_mask, []),
        (whole_windows, []),
        (weighed, []),
    ],
)
def test_a_mask_that_attends_to_padding(make: Any, codes: list[str], tmp_path: Path) -> None:
    assert codes_of(DataLoader(Texts(make), batch_size=6, shuffle=True), tmp_path) == codes
