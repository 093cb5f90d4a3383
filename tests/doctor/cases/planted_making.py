"""Planted faults of what makes a batch: decoding, transforms, tokenising, collating, pickling:

python planted_making.py fault_collate
"""

from __future__ import annotations

import gc
import math
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from planted import planted, train
from planted_data import PHOTOGRAPHS, photograph, pngs, sentence, tokeniser
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

JITTER = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def jittered(image: Image.Image) -> Image.Image:
    for enhancer in random.sample(JITTER, len(JITTER)):
        image = enhancer(image).enhance(random.uniform(0.6, 1.4))
    return image.crop((100, 100, 324, 324))


def blurred(image: Image.Image) -> Image.Image:
    image = turned(image).filter(ImageFilter.GaussianBlur(random.uniform(2, 6)))
    return image.resize((224, 224))


def turned(image: Image.Image) -> Image.Image:
    return image.rotate(random.uniform(-30, 30), resample=Image.Resampling.BICUBIC)


def a_quarter(image: Image.Image) -> Image.Image:
    return image.reduce(4)


def a_half_turned(image: Image.Image) -> Image.Image:
    return turned(image.reduce(2))


def resized_and_turned(image: Image.Image) -> Image.Image:
    return image.convert("RGB").resize((512, 384)).rotate(random.uniform(-10, 10))


class Held(Dataset[torch.Tensor]):
    """Photographs in memory, each changed anew."""

    def __init__(self, width: int, height: int, change: Callable[[Image.Image], Image.Image]) -> None:
        self.images = [photograph(number, width, height) for number in range(4)]
        self.change = change

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.change(self.images[index % len(self.images)])))


@planted("planted_making.py:30")
def fault_colour_jitter() -> None:
    """Brightness, contrast and colour of each photograph are changed by Pillow, at full size.

    A batch of 4: some 40 ms of that in each of 2 workers; a step: 5 ms."""
    train(DataLoader(Held(960, 720, jittered), batch_size=4, shuffle=True, num_workers=2), seconds=0.005)


@planted("transforms")
def fault_augmentation() -> None:
    """Each image is rotated and blurred on the CPU, at full size.

    A batch of 2: some 40 ms of it in each of 2 workers; a step: 10 ms."""
    train(DataLoader(Held(640, 480, blurred), batch_size=2, shuffle=True, num_workers=2), seconds=0.010)


class Photographs(Dataset[torch.Tensor]):
    """PNGs that are decoded, and then changed."""

    def __init__(self, paths: list[Path], change: Callable[[Image.Image], Image.Image]) -> None:
        self.paths, self.change = paths, change

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            return torch.from_numpy(np.array(self.change(image)))


@planted("decode")
def fault_png_decode() -> None:
    """1024×768 PNGs are decoded in full to be trained on at 256×192.

    A batch of 2: some 30 ms of decoding in each of 2 workers; a step: 8 ms."""
    dataset = Photographs(pngs(1024, 768) * 200, a_quarter)
    train(DataLoader(dataset, batch_size=2, shuffle=True, num_workers=2), seconds=0.008)


@planted("decode", "transforms")
def two_decode_augmentation() -> None:
    """Large PNGs, and a rotation after them, about equally dear.

    A batch of 2: some 20 ms of each in each of 2 workers; a step: 8 ms."""
    dataset = Photographs(pngs(1024, 768) * 300, a_half_turned)
    train(DataLoader(dataset, batch_size=2, shuffle=True, num_workers=2), seconds=0.008)


def hundred_ms() -> None:
    """Run as many scripts do: steps of about 100 ms, half of which wait for PNGs that are decoded and turned.

    A batch of 7: some 180 ms in each of 2 workers; a step on the device: 50 ms. Each epoch of 101 steps starts workers
    anew."""
    dataset = Photographs(pngs(1024, 768) * (704 // PHOTOGRAPHS), resized_and_turned)
    train(DataLoader(dataset, batch_size=7, shuffle=True, num_workers=2), seconds=0.050)


class Rows(Dataset[Any]):
    """Rows of a list, in the order of their places."""

    def __init__(self, rows: list[Any], sample: Callable[..., Any] | None = None) -> None:
        self.rows, self.sample = rows, sample

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> Any:
        row = self.rows[index % len(self.rows)]
        return row if self.sample is None else self.sample(row)


def signal(number: int) -> torch.Tensor:
    return torch.full((50_000,), float(number))


def collate_numbers(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([[0.5 * value for value in sample.tolist()] for sample in samples])


@planted("collate")
def fault_collate() -> None:
    """A collate function that goes through every number in Python.

    A batch of 8: some 60 ms of collate in each of 2 workers; a step: 8 ms."""
    dataset = Rows(list(range(8_000)), signal)
    train(DataLoader(dataset, 8, shuffle=True, num_workers=2, collate_fn=collate_numbers), seconds=0.008)


@planted("pickling")
def fault_large_pickles() -> None:
    """Batches are lists of Python objects, pickled in the worker and unpickled in the training process.

    A batch of 8: some 15 ms to pickle, 20 ms to unpickle, and next to nothing to make; a step: 8 ms."""
    rows = [
        {"boxes": [(box + 0.5, box + 1.5, box + 2.5, f"class {box}") for box in range(6_000)], "image": number}
        for number in range(16)
    ]
    train(DataLoader(Rows(rows), batch_size=8, num_workers=2, collate_fn=list), seconds=0.008)


def collate_boxes(samples: list[list[tuple[float, float, float, float, str]]]) -> list[tuple[float, float, str]]:
    return [
        (sum(math.hypot(left - x, top - y) for x in range(2) for y in range(4)), right * bottom, name.title())
        for sample in samples
        for left, top, right, bottom, name in sample
    ]


@planted("collate", "pickling")
def two_collate_pickles() -> None:
    """A collate function that goes through every box in Python, and gives lists of Python objects, which are then
    pickled and unpickled.

    A batch of 8: some 27 ms of collate in each of 2 workers, then 2 ms to pickle and 3 to unpickle; a step: 6 ms."""
    rows = [[(box, box + 1.0, box + 2.0, 1.5, f"class {box}") for box in range(2_000)] for _ in range(16)]
    train(DataLoader(Rows(rows), batch_size=8, num_workers=2, collate_fn=collate_boxes), seconds=0.006)


class Annotated(Dataset[torch.Tensor]):
    """Each sample has a list of boxes, each a dict of its own."""

    def __init__(self) -> None:
        self.boxes: list[Any] = [{"box": [at, at], "label": [at]} for at in range(20_000)]

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 4 == 0:
            gc.collect()  # as the allocations of a larger sample would bring about
        return torch.full((1_000,), float(len(self.boxes[index]["box"])))


@planted("garbage collections")
def fault_garbage() -> None:
    """A dataset of many small Python objects, and samples that have all of them looked at by a full garbage collection.

    A batch of 8: some 40 ms in each of 2 workers, most of it full garbage collections; a step: 5 ms."""
    train(DataLoader(Annotated(), batch_size=8, shuffle=True, num_workers=2), seconds=0.005)


def token_ids(model: Any, text: str) -> torch.Tensor:
    return torch.tensor(model.encode(text).ids)


def pad(samples: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(samples, batch_first=True)


@planted("tokenisation")
def fault_tokeniser() -> None:
    """Long texts are tokenised one by one, in each epoch anew; each batch is padded to its own longest.

    A batch of 8: some 25 ms of it in the one worker; a step: 6 ms."""
    texts = [sentence(number, 2_000 + number % 50) for number in range(200)]
    dataset = Rows(texts, partial(token_ids, tokeniser()))
    train(DataLoader(dataset, batch_size=8, shuffle=True, num_workers=1, collate_fn=pad), seconds=0.006)


LONGEST = 512


def padded(number: int) -> dict[str, torch.Tensor]:
    length = min(int(random.Random(number).lognormvariate(4, 0.5)), LONGEST)
    input_ids, attention_mask = torch.zeros(2, LONGEST, dtype=torch.int64)
    input_ids[:length] = torch.arange(1, length + 1)
    attention_mask[:length] = 1
    return {"input_ids": input_ids, "attention_mask": attention_mask}


def by_tokens(seconds: float) -> Callable[[Any], float]:
    return lambda batch: float(batch["input_ids"].numel() * seconds)


@planted("padding")
def fault_padding() -> None:
    """Every sentence is padded to 512 tokens, and most have less than 100; the device computes on all of them.

    A batch of 8 is made in less than 1 ms; a step: 5 µs a token, 20 ms, of which 17 are spent on padding."""
    dataset = Rows(list(range(8_000)), padded)
    train(DataLoader(dataset, batch_size=8, shuffle=True, num_workers=1), seconds=by_tokens(5e-6))


def padded_tokens(model: Any, text: str) -> dict[str, torch.Tensor]:
    for _ in range(12):  # as much work as a real model's tokeniser has with one
        tokens = model.encode(text)
    return {"input_ids": torch.tensor(tokens.ids), "attention_mask": torch.tensor(tokens.attention_mask)}


@planted("tokenisation", "padding")
def two_tokeniser_padding() -> None:
    """Sentences tokenised one by one, and padded to 512 tokens where most have less than 150.

    A batch of 16: some 30 ms of tokenising in the one worker; a step: 2 µs a token, 16 ms, of which 12 are padding."""
    model, lengths = tokeniser(), random.Random(0)
    model.enable_padding(length=LONGEST)
    model.enable_truncation(LONGEST)
    texts = [sentence(number, int(lengths.lognormvariate(4.7, 0.4))) for number in range(400)]
    dataset = Rows(texts, partial(padded_tokens, model))
    train(DataLoader(dataset, batch_size=16, shuffle=True, num_workers=1), seconds=by_tokens(2e-6))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
