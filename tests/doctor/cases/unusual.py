"""Correct training scripts that look odd to a check of their data: python unusual.py NAME FOLDER"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checked import (
    PASSES,
    RANK,
    SIDE,
    WORLD,
    Captions,
    Loop,
    Photos,
    Reshuffled,
    label_of,
    loader_of,
    photos,
    picture,
    train_and_evaluate,
)
from PIL import Image
from torch.utils.data import IterableDataset, Sampler, Subset, WeightedRandomSampler, get_worker_info

CASES: dict[str, Callable[[list[str], list[str]], None]] = {}


class Made(Photos):
    """Samples of a flipped picture, what `more` makes beside it, and a label."""

    def __init__(self, files: list[str], more: Callable[[int], tuple[Any, ...]]) -> None:
        super().__init__(files, flips=True)
        self.more = more

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, *self.more(index), label


def of_index(index: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(index).random(shape, np.float32) + 0.1)


BESIDE: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "zero_masks": lambda index: (torch.zeros(SIDE, SIDE, dtype=torch.long),),
    "masks_of_ones": lambda index: (torch.ones(SIDE, SIDE),),
    "embeddings": lambda index: (of_index(index, 4), of_index(index, 16, 16)),
    "four_ratings": lambda index: ((of_index(index, 4) * 9).round(),),
}


def case(train: Callable[[list[str], list[str]], None]) -> None:
    CASES[train.__name__] = train


def passes(loader: Any, most: int | None = None) -> None:
    loop = Loop()
    for epoch in range(PASSES):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        loop.train(islice(loader, most))


@case
def two_views_and_one_class(files: list[str], others: list[str]) -> None:
    train_and_evaluate(Made(files[:20], lambda index: (picture(files[index]),)), Photos(others[:6]))


class Repeated(Sampler[int]):
    """Repeated augmentation: each sample three times, on whichever rank comes next."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count // WORLD

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch))
        return islice(iter(order.repeat_interleave(3).tolist()[RANK::WORLD]), len(self))


@case
def repeated_augmentation(files: list[str], others: list[str]) -> None:
    passes(loader_of(Photos(files, flips=True), sampler=Repeated(len(files))))


@case
def a_curriculum(files: list[str], others: list[str]) -> None:
    passes(loader_of(Photos(sorted(files, key=lambda file: file[-8:]), flips=True)))


@case
def weights(files: list[str], others: list[str]) -> None:
    passes(loader_of(Photos(files, flips=True), sampler=WeightedRandomSampler(torch.rand(len(files)), len(files))))


@case
def folds(files: list[str], others: list[str]) -> None:
    data, order = Photos(files), torch.randperm(len(files)).tolist()
    for begin in range(0, len(files), 20):
        loop, left_out = Loop(), order[begin : begin + 20]
        kept = Subset(data, [index for index in order if index not in left_out])
        loop.train(loader_of(kept, shuffle=True))
        loop.evaluate(loader_of(Subset(data, left_out)))


@case
def folds_of_streams(files: list[str], others: list[str]) -> None:
    order = random.Random(0).sample(files, len(files))
    for begin in range(0, len(files), 20):
        loop, left_out = Loop(), order[begin : begin + 20]
        loop.train(loader_of(Reshuffled([file for file in order if file not in left_out])))
        loop.evaluate(loader_of(Reshuffled(left_out, shuffles=False)))


@case
def accuracy_on_training_samples(files: list[str], others: list[str]) -> None:
    loop, loader = Loop(), loader_of(Photos(files, flips=True), shuffle=True)
    evaluations = [loader_of(Photos(some), num_workers=0) for some in (others, files)]
    for _ in range(PASSES):
        loop.train(loader)
        for evaluation in evaluations:
            loop.evaluate(evaluation)


class Endless(Captions):
    def __iter__(self) -> Iterator[Any]:
        drawn = random.Random(torch.initial_seed())
        while True:
            index = drawn.randrange(len(self.files))
            yield picture(self.files[index]), f"photo {index}", index // 20


@case
def an_endless_stream(files: list[str], others: list[str]) -> None:
    passes(loader_of(Endless(files)), most=20)


class Texts(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info, drawn = get_worker_info(), random.Random(1)
        rows = [torch.tensor([drawn.randrange(50) / 50 for _ in range(3 * SIDE * SIDE)]) for _ in range(64)]
        for number, row in enumerate(rows):
            if info is None or number % info.num_workers == info.id:
                yield row.view(3, SIDE, SIDE), int(row[0] * 50) % 4


@case
def a_stream_without_files(files: list[str], others: list[str]) -> None:
    passes(loader_of(Texts()))


class Shard(IterableDataset[Any]):
    """Rows of one file, of which each worker reads all and keeps its own."""

    def __init__(self, files: list[str], *, flips: bool = True) -> None:
        self.files, self.flips = files, flips

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for number, file in enumerate(self.files):
            image = picture(file, flips=self.flips and bool(torch.rand(()) < 0.5))
            if info is None or number % info.num_workers == info.id:
                yield image, number % 4


@case
def a_stream_that_reads_all_and_keeps_its_own(files: list[str], others: list[str]) -> None:
    passes(loader_of(Shard(random.Random(0).sample(files, len(files)))))


class Held(Shard):
    """Rows of all files, of which the training and the evaluation each keep a part."""

    def __init__(self, files: list[str], *, is_evaluated: bool) -> None:
        super().__init__(files, flips=not is_evaluated)
        self.is_evaluated = is_evaluated

    def __iter__(self) -> Iterator[Any]:
        rows = enumerate(super().__iter__())
        return (row for number, row in rows if (number % 5 == 0) == self.is_evaluated)


@case
def streams_that_read_all_and_keep_their_split(files: list[str], others: list[str]) -> None:
    order = random.Random(0).sample(files, len(files))
    loop, (train, evaluation) = Loop(), (loader_of(Held(order, is_evaluated=each)) for each in (False, True))
    for _ in range(PASSES):
        loop.train(train)
        loop.evaluate(evaluation)


class Permuted(Reshuffled):
    """Endless stream of permutations of all files, each worker its own."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from super().__iter__()


@case
def an_endless_stream_of_permutations(files: list[str], others: list[str]) -> None:
    passes(loader_of(Permuted(files, by_worker=False)), most=12)


class Buffered(Captions):
    """Augmented pictures, taken at random from a buffer by draws that are the same in each worker."""

    reads_first = True

    def __iter__(self) -> Iterator[Any]:
        drawn, buffer = random.Random(0), list[Any]()
        info = get_worker_info()
        files = self.files[info.id :: info.num_workers] if info else self.files
        for file in files:
            buffer.append(self.sample(file) if self.reads_first else file)
            if len(buffer) == 5:
                one = buffer.pop(drawn.randrange(5))
                yield one if self.reads_first else self.sample(one)

    def sample(self, file: str) -> Any:
        return picture(file, flips=bool(torch.rand(()) < 0.5)), Path(file).stem, label_of(file)


@case
def streams_that_shuffle_alike(files: list[str], others: list[str]) -> None:
    passes(loader_of(Buffered(random.Random(1).sample(files, len(files)))))


@case
def streams_that_shuffle_alike_before_they_read(files: list[str], others: list[str]) -> None:
    stream = Buffered(random.Random(1).sample(files, len(files)))
    stream.reads_first = False
    passes(loader_of(stream))


@case
def boxes_of_the_file_beside_those_of_the_image(files: list[str], others: list[str]) -> None:
    corners = torch.tensor([[5.0, 5.0, 60.0, 50.0], [20.0, 10.0, 85.0, 70.0]])
    scale = torch.tensor([SIDE / 90, SIDE / 72, SIDE / 90, SIDE / 72])
    data = Made(files, lambda index: (corners[index % 2], corners[index % 2] * scale))
    data.flips = False
    passes(loader_of(data, shuffle=True))


@case
def the_logarithm_of_a_depth(files: list[str], others: list[str]) -> None:
    for index, file in enumerate(files):
        Image.fromarray((of_index(index, 72, 90).numpy() * 5000).astype(np.uint16)).save(file[:-4] + ".tif")

    def depth(index: int) -> tuple[torch.Tensor]:
        values = Image.open(files[index][:-4] + ".tif").resize((SIDE, SIDE), Image.Resampling.NEAREST)
        return (torch.from_numpy(np.asarray(values).astype(np.float32)).log(),)

    data = Made(files, depth)
    data.flips = False
    passes(loader_of(data, shuffle=True))


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    files, others = photos(folder / "train"), photos(folder / "val", each=6, seed=1)
    if name in BESIDE:
        passes(loader_of(Made(files, BESIDE[name]), shuffle=True))
    else:
        CASES[name](files, others)
