"""Training scripts with one planted fault of their data each, and their correct counterparts.

python checked.py NAME right|faulty FOLDER
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from quick_optimizer import Descent
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info
from torch.utils.data.distributed import DistributedSampler

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SIDE, CLASSES, PASSES = 48, 4, 6
Case = Callable[[bool, Path], None]
CASES: dict[str, Case] = {}


def planted(code: str, ranks: int = 1, certain: bool = True) -> Callable[[Case], Case]:
    """Declare a script by what `headrace check` should find in it."""

    def declare(case: Case) -> Case:
        CASES[case.__name__] = case
        return case

    return declare


def photos(folder: Path, *, each: int = 20, seed: int = 0) -> list[str]:
    """Write smooth pictures in a folder for each class, by the first rank."""
    done = folder.with_suffix(".done")
    if RANK == 0 and not done.exists():
        rng = np.random.default_rng(seed)
        for label in range(CLASSES):
            (folder / f"c{label}").mkdir(parents=True)
            for number in range(each):
                smooth(rng, (90, 72)).save(folder / f"c{label}" / f"p{number:03}.png")
        done.touch()
    while not done.exists():
        time.sleep(0.05)
    return sorted(map(str, folder.rglob("*.png")))


def smooth(rng: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    coarse = rng.integers(0, 256, (12, 15, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def label_of(file: str) -> int:
    return int(Path(file).parent.name[1:])


def picture(file: str, *, flips: bool = False) -> torch.Tensor:
    pixels = np.asarray(Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32)
    return torch.from_numpy((pixels[:, ::-1] if flips else pixels).copy()).permute(2, 0, 1) / 255


class Photos(Dataset[Any]):
    def __init__(self, files: list[str], *, flips: bool = False) -> None:
        self.samples, self.flips, self.epoch = [(file, label_of(file)) for file in files], flips, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        file, label = self.samples[index]
        return picture(file, flips=self.flips and bool(torch.rand(()) < 0.5)), label


class Captions(IterableDataset[Any]):
    """Stream of augmented pictures with a caption and a label."""

    def __init__(
        self, files: list[str], *, by_rank: bool = True, by_worker: bool = True, shuffles: bool = True
    ) -> None:
        self.files, self.by_rank, self.by_worker, self.shuffles = files, by_rank, by_worker, shuffles

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        rows = [(file, f"photo {number} of class {label_of(file)}") for number, file in enumerate(self.files)]
        if self.shuffles:
            random.Random(0).shuffle(rows)
        rows = rows[RANK::WORLD] if self.by_rank else rows
        for file, caption in rows[info.id :: info.num_workers] if info and self.by_worker else rows:
            yield picture(file, flips=bool(torch.rand(()) < 0.5)), caption, label_of(file)


class Loop:
    def __init__(self) -> None:
        self.model: torch.nn.Module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIDE * SIDE * 3, 8))
        if WORLD > 1:
            torch.distributed.init_process_group("gloo")
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = Descent(self.model.parameters(), lr=1e-4)

    def train(self, loader: Any, change: Callable[[torch.Tensor], torch.Tensor] = lambda images: images) -> None:
        for images, *_, labels in loader:
            self.optimizer.zero_grad()
            cross_entropy(self.model(change(images)), labels).backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, loader: Any) -> None:
        for images, *_ in loader:
            self.model(images)


def loader_of(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, **options})


@planted("same-order", ranks=2)
def forgets_set_epoch(right: bool, folder: Path) -> None:
    loop, data = Loop(), Photos(photos(folder / "train"), flips=True)
    sampler = DistributedSampler(data, WORLD, RANK)
    evaluation = loader_of(Photos(photos(folder / "val", each=6, seed=1)), num_workers=0)
    for epoch in range(PASSES):
        if right:
            sampler.set_epoch(epoch)
        loop.train(loader_of(data, sampler=sampler))
        loop.evaluate(evaluation)


@planted("same-order", certain=False)
def seeds_each_loader_alike(right: bool, folder: Path) -> None:
    loop, data = Loop(), Photos(photos(folder / "train"), flips=True)
    for epoch in range(PASSES):
        loop.train(loader_of(data, shuffle=True, generator=torch.Generator().manual_seed(epoch * right)))


@planted("shared-samples", ranks=2)
def gives_ranks_a_plain_loader(right: bool, folder: Path) -> None:
    loop, data = Loop(), Photos(photos(folder / "train"), flips=True)
    torch.manual_seed(RANK)
    sampler = DistributedSampler(data, WORLD, RANK) if right else None
    loader = loader_of(data, sampler=sampler, shuffle=sampler is None, num_workers=1)
    for epoch in range(PASSES):
        if sampler is not None:
            sampler.set_epoch(epoch)
        loop.train(loader)


@planted("shared-samples", ranks=2)
def streams_everything_to_each_rank(right: bool, folder: Path) -> None:
    loop, loader = Loop(), loader_of(Captions(photos(folder / "train"), by_rank=right), num_workers=1)
    for _ in range(PASSES):
        loop.train(loader)


@planted("shared-samples", ranks=2)
def gives_each_rank_the_sampler_of_one(right: bool, folder: Path) -> None:
    loop, data = Loop(), Photos(photos(folder / "train"), flips=True)
    sampler = DistributedSampler(data, WORLD if right else 1, RANK if right else 0)
    for epoch in range(PASSES):
        sampler.set_epoch(epoch)
        loop.train(loader_of(data, sampler=sampler, num_workers=1))


def train_rank(rank: int, right: bool, folder: Path) -> None:
    """Train one of two spawned ranks, which no environment variable numbers."""
    torch.distributed.init_process_group("gloo", f"file://{folder / 'group'}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    loop, data = Loop(), Photos(photos(folder / "train"), flips=True)
    loop.model = torch.nn.parallel.DistributedDataParallel(loop.model)
    sampler = DistributedSampler(data, 2, rank) if right else None
    loader = loader_of(data, sampler=sampler, shuffle=not right, num_workers=1, multiprocessing_context="spawn")
    for epoch in range(PASSES):
        if sampler is not None:
            sampler.set_epoch(epoch)
        loop.train(loader)


@planted("shared-samples")
def spawns_ranks_with_a_plain_loader(right: bool, folder: Path) -> None:
    photos(folder / "train")
    torch.multiprocessing.spawn(train_rank, args=(right, folder), nprocs=2)


class Flipped(Captions):
    """Stream of augmented pictures and labels: no row is the same in two workers."""

    def __iter__(self) -> Iterator[Any]:
        return ((image, label) for image, _, label in super().__iter__())


@planted("worker-duplicates")
def streams_flipped_pictures_from_each_worker(right: bool, folder: Path) -> None:
    loop, loader = Loop(), loader_of(Flipped(photos(folder / "train"), by_worker=right))
    for _ in range(PASSES):
        loop.train(loader)


class Reshuffled(Captions):
    """Stream of pictures and labels, whose workers each take an order of their own if it `shuffles`."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        files = self.files[info.id :: info.num_workers] if info and self.by_worker else list(self.files)
        if self.shuffles:
            random.Random(torch.initial_seed()).shuffle(files)
        return ((picture(file, flips=self.shuffles and bool(torch.rand(()) < 0.5)), label_of(file)) for file in files)


@planted("worker-duplicates")
def shuffles_everything_in_each_worker(right: bool, folder: Path) -> None:
    loop, loader = Loop(), loader_of(Reshuffled(photos(folder / "train"), by_worker=right))
    for _ in range(PASSES):
        loop.train(loader)


@planted("leaked-split")
def streams_training_files_to_the_evaluation(right: bool, folder: Path) -> None:
    files, others = photos(folder / "train"), photos(folder / "val", each=6, seed=1)
    loop, loader = Loop(), loader_of(Reshuffled(files))
    evaluation = loader_of(Reshuffled(others if right else others + files[::9], shuffles=False))
    for _ in range(PASSES):
        loop.train(loader)
        loop.evaluate(evaluation)


@planted("worker-duplicates")
def streams_everything_from_each_worker(right: bool, folder: Path) -> None:
    loop, loader = Loop(), loader_of(Captions(photos(folder / "train"), by_worker=right))
    for _ in range(PASSES):
        loop.train(loader)


@planted("class-order")
def streams_class_by_class(right: bool, folder: Path) -> None:
    loop, loader = Loop(), loader_of(Captions(photos(folder / "train"), shuffles=right))
    for _ in range(PASSES):
        loop.train(loader)


@planted("stale-state")
def sets_the_epoch_of_a_copy(right: bool, folder: Path) -> None:
    loop, data = Loop(), Photos(photos(folder / "train"), flips=True)
    loader = loader_of(data, shuffle=True, persistent_workers=not right)
    for epoch in range(PASSES):
        data.set_epoch(epoch)
        loop.train(loader)


@planted("augmented-evaluation", certain=False)
def flips_the_evaluation(right: bool, folder: Path) -> None:
    loop, evaluated = Loop(), Photos(photos(folder / "val", each=6, seed=1), flips=not right)
    loader, evaluation = loader_of(Photos(photos(folder / "train"), flips=True), shuffle=True), loader_of(evaluated)
    loop.train(loader)
    loop.evaluate(evaluation)


def train_and_evaluate(train: Any, evaluated: Any) -> None:
    loop, loader, evaluation = Loop(), loader_of(train, shuffle=True), loader_of(evaluated, num_workers=0)
    for _ in range(PASSES):
        loop.train(loader)
        loop.evaluate(evaluation)


@planted("leaked-split")
def adds_files_to_the_evaluation(right: bool, folder: Path) -> None:
    files, others = photos(folder / "train"), photos(folder / "val", each=6, seed=1)
    train_and_evaluate(Photos(files, flips=True), Photos(others if right else others + files[:5]))


@planted("leaked-split", certain=False)
def splits_indices_that_overlap(right: bool, folder: Path) -> None:
    data = Photos(photos(folder / "train"))
    order = torch.randperm(len(data)).tolist()
    train_and_evaluate(Subset(data, order[:60]), Subset(data, order[60 if right else 40 :]))


@planted("leaked-split", certain=False)
def splits_frames_at_random(right: bool, folder: Path) -> None:
    scenes, rng = folder / "scenes", np.random.default_rng(3)
    for scene in range(8):
        (scenes / f"c{scene}").mkdir(parents=True)
        whole = np.asarray(smooth(rng, (140, 100)))
        for frame in range(10):
            shown = Image.fromarray(whole[frame : frame + 72, frame : frame + 90])
            shown.save(scenes / f"c{scene}" / f"frame_{frame:04}.png")
    files = sorted(map(str, scenes.rglob("*.png")))
    if not right:
        random.Random(0).shuffle(files)
    train_and_evaluate(Photos(files[:60]), Photos(files[60:]))


class Ranked(Photos):
    """Labels by the rank of the folder among those of its own files."""

    def __init__(self, files: list[str], names: list[str] | None = None) -> None:
        super().__init__(files)
        names = names or sorted({Path(file).parent.name for file in files})
        self.samples = [(file, names.index(Path(file).parent.name)) for file in files]


@planted("shifted-classes")
def numbers_the_classes_of_each_folder(right: bool, folder: Path) -> None:
    files, others = photos(folder / "train"), photos(folder / "val", each=6, seed=1)
    lacking = [file for file in others if label_of(file) != 1]
    train_and_evaluate(Ranked(files), Ranked(lacking, [f"c{label}" for label in range(CLASSES)] if right else None))


class Lenient(Photos):
    def __getitem__(self, index: int) -> Any:
        try:
            return super().__getitem__(index)
        except OSError:
            return self[(index + 1) % len(self)]


@planted("substituted-sample")
def replaces_damaged_pictures(right: bool, folder: Path) -> None:
    files = photos(folder / "train")
    for file in () if right else files[3::9]:
        Path(file).write_bytes(b"no picture")
    train_and_evaluate(Lenient(files, flips=True), Photos(photos(folder / "val", each=6, seed=1)))


MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


class Normalised(Photos):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return (image - MEAN) / STD, label


@planted("normalized-twice")
def normalises_on_the_device_again(right: bool, folder: Path) -> None:
    files, loop = photos(folder / "train"), Loop()
    loader = loader_of(Photos(files) if right else Normalised(files), shuffle=True)
    for _ in range(PASSES):
        loop.train(loader, lambda images: (images - MEAN) / STD)


class Boxes(Photos):
    """Boxes that the dataset holds, beside flipped pictures."""

    def __init__(self, files: list[str], *, right: bool) -> None:
        super().__init__(files)
        rng = np.random.default_rng(5)
        corners = np.sort(rng.uniform(0, SIDE, (len(files), 2, 2)), axis=1).astype(np.float32)
        self.right, self.boxes = right, torch.from_numpy(corners.reshape(-1, 1, 4))

    def __getitem__(self, index: int) -> Any:
        flips, boxes = bool(torch.rand(()) < 0.5), self.boxes[index].clone()
        if flips and self.right:
            boxes[:, [0, 2]] = SIDE - boxes[:, [2, 0]]
        return picture(self.samples[index][0], flips=flips), boxes, self.samples[index][1]


@planted("misaligned")
def leaves_boxes_behind(right: bool, folder: Path) -> None:
    loop, loader = Loop(), loader_of(Boxes(photos(folder / "train"), right=right), shuffle=True)
    for _ in range(PASSES):
        loop.train(loader)


class Sentences(Dataset[Any]):
    """Token ids of sentences, padded with zeros, and a label."""

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> Any:
        drawn = random.Random(index)
        ids = [1 + drawn.randrange(40) for _ in range(drawn.randint(4, 16))]
        return torch.tensor(ids + [0] * (16 - len(ids))), index % CLASSES


class Tower(torch.nn.Module):
    """Mean of the words' vectors, of padding as well unless `right`."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.right, self.words = right, torch.nn.Embedding(41, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        weights = (ids > 0).float() if self.right else torch.ones(ids.shape)
        return (self.words(ids) * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)


@planted("attended-padding", certain=False)
def pools_over_padding(right: bool, folder: Path) -> None:
    loop = Loop()
    loop.model = Tower(right)
    loop.optimizer = Descent(loop.model.parameters(), lr=1e-4)
    loader = loader_of(Sentences(), shuffle=True)
    for _ in range(PASSES):
        loop.train(loader)


class Depths(Photos):
    def __init__(self, files: list[str], *, right: bool) -> None:
        super().__init__(files)
        self.right = right

    def __getitem__(self, index: int) -> Any:
        file, label = self.samples[index]
        depth = Image.open(file[:-4] + ".tif")
        depth = (depth if self.right else depth.convert("L")).resize((SIDE, SIDE), Image.Resampling.NEAREST)
        return picture(file), torch.from_numpy(np.asarray(depth).astype(np.float32)), label


@planted("clipped")
def bounds_depth_by_eight_bits(right: bool, folder: Path) -> None:
    files, rng = photos(folder / "train"), np.random.default_rng(6)
    for file in files:
        values = np.asarray(smooth(rng, (90, 72)))[..., 0].astype(np.uint16) * 30 + 500
        Image.fromarray(values).save(file[:-4] + ".tif")
    loop, loader = Loop(), loader_of(Depths(files, right=right), shuffle=True)
    for _ in range(PASSES):
        loop.train(loader)


if __name__ == "__main__":
    CASES[sys.argv[1]](sys.argv[2] == "right", Path(sys.argv[3]))
