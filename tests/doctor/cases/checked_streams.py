"""Streams with one planted fault of their data each, and their correct counterparts.

python checked_streams.py NAME right|faulty FOLDER
"""

from __future__ import annotations

import csv
import io
import random
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checked import CASES, CLASSES, PASSES, Loop, label_of, loader_of, photos, picture, planted
from torch.utils.data import IterableDataset, get_worker_info


def own_part(rows: list[Any]) -> list[Any]:
    """Return the worker's part of shuffled rows. All workers shuffle alike, so that no row is in two parts."""
    random.Random(0).shuffle(rows)
    info = get_worker_info()
    return rows[info.id :: info.num_workers] if info else rows


def train_on(stream: Any, **options: Any) -> None:
    loop, loader = Loop(), loader_of(stream, **options)
    for _ in range(PASSES):
        loop.train(loader)


def flipped(image: torch.Tensor, draw: float) -> torch.Tensor:
    return image.flip(2) if draw < 0.5 else image


class Globbed(IterableDataset[Any]):
    """Flipped pictures of a folder, whose flips come from a generator that each iterator makes."""

    def __init__(self, files: list[str], seed: Callable[[], int]) -> None:
        self.files, self.seed = files, seed

    def __iter__(self) -> Iterator[Any]:
        rng = np.random.default_rng(self.seed())
        for file in own_part(list(self.files)):
            yield flipped(picture(file), rng.random()), label_of(file)


@planted("same-draws")
def seeds_each_iterator_alike(right: bool, folder: Path) -> None:
    train_on(Globbed(photos(folder / "train"), torch.initial_seed if right else lambda: 0))


def packed(files: list[str], path: Path) -> Path:
    """Write pictures as members of a tar, below their classes, if no rank has done so."""
    if not path.exists():
        with tarfile.open(path, "w") as tar:
            for file in files:
                tar.add(file, "/".join(Path(file).parts[-2:]))
    return path


class Members(IterableDataset[Any]):
    """Pictures of a tar, brightened by draws of a generator that the dataset holds, and a label."""

    def __init__(self, path: Path, *, reseeds: bool = True, names: list[str] | None = None) -> None:
        self.path, self.reseeds, self.names = path, reseeds, names
        self.rng = random.Random(0)

    def brightness(self) -> float:
        return self.rng.uniform(0.6, 1.0)

    def __iter__(self) -> Iterator[Any]:
        if self.reseeds:
            self.rng.seed(torch.initial_seed())
        with tarfile.open(self.path) as tar:
            members = [member for member in tar.getmembers() if member.isfile()]
            names = self.names or sorted({member.name.split("/")[0] for member in members})
            for member in own_part(members):
                image = picture(io.BytesIO(tar.extractfile(member).read()))  # type: ignore[union-attr,arg-type]
                yield image * self.brightness(), names.index(member.name.split("/")[0])


@planted("same-draws")
def copies_a_generator_to_each_worker(right: bool, folder: Path) -> None:
    train_on(Members(packed(photos(folder / "train"), folder / "train.tar"), reseeds=right))


def listed(files: list[str], path: Path) -> Path:
    """Write a table of files and classes."""
    with path.open("w") as file:
        csv.writer(file).writerows([file, Path(file).parent.name] for file in files)
    return path


class Rows(IterableDataset[Any]):
    """Pictures of a table, cut by draws of NumPy's global generator, a caption and a label."""

    def __init__(self, path: Path, *, cuts: bool = True, names: list[str] | None = None) -> None:
        self.path, self.cuts, self.names = path, cuts, names

    def rows(self) -> Iterator[tuple[str, str]]:
        with self.path.open() as file:
            yield from own_part(list(csv.reader(file)))

    def __iter__(self) -> Iterator[Any]:
        with self.path.open() as file:
            names = self.names or sorted({name for _, name in csv.reader(file)})
        for file, name in self.rows():
            image = picture(file)
            if self.cuts:
                left = np.random.randint(8)
                image = torch.cat([image[..., left:], image[..., :left]], 2)
            yield image, f"a photo of {name}", names.index(name)


def constant(worker: int) -> None:
    np.random.seed(42)


def own_seed(worker: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)


@planted("same-draws")
def seeds_each_worker_alike(right: bool, folder: Path) -> None:
    table = listed(photos(folder / "train"), folder / "train.csv")
    train_on(Rows(table), worker_init_fn=own_seed if right else constant)


def stream_and_evaluate(train: Any, evaluated: Any) -> None:
    loop, loader, evaluation = Loop(), loader_of(train), loader_of(evaluated)
    for _ in range(PASSES):
        loop.train(loader)
        loop.evaluate(evaluation)


def lacking(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """Return files to train on, files to evaluate on, which lack a class, and the names of all classes."""
    others = photos(folder / "val", each=6, seed=1)
    names = [f"c{label}" for label in range(CLASSES)]
    return photos(folder / "train"), [file for file in others if label_of(file) != 1], names


class Ranked(IterableDataset[Any]):
    """Pictures and labels by the rank of the folder among those of its own files."""

    def __init__(self, files: list[str], names: list[str] | None = None) -> None:
        self.files = files
        self.names = names or sorted({Path(file).parent.name for file in files})

    def __iter__(self) -> Iterator[Any]:
        for file in own_part(list(self.files)):
            yield picture(file), self.names.index(Path(file).parent.name)


@planted("shifted-classes")
def streams_classes_of_each_folder(right: bool, folder: Path) -> None:
    files, others, names = lacking(folder)
    stream_and_evaluate(Ranked(files), Ranked(others, names if right else None))


@planted("shifted-classes")
def streams_classes_of_each_tar(right: bool, folder: Path) -> None:
    files, others, names = lacking(folder)
    trained, evaluated = packed(files, folder / "train.tar"), packed(others, folder / "val.tar")
    stream_and_evaluate(StillMembers(trained), StillMembers(evaluated, names=names if right else None))


class StillMembers(Members):
    def brightness(self) -> float:
        return 1.0


@planted("shifted-classes")
def streams_classes_of_each_table(right: bool, folder: Path) -> None:
    files, others, names = lacking(folder)
    trained, evaluated = listed(files, folder / "train.csv"), listed(others, folder / "val.csv")
    stream_and_evaluate(Rows(trained), Rows(evaluated, cuts=False, names=names if right else None))


if __name__ == "__main__":
    CASES[sys.argv[1]](sys.argv[2] == "right", Path(sys.argv[3]))
