"""What does `headrace equal` find of subtle differences, and does it ever raise an alarm between equal loaders?

    python benchmarks/equal_power.py FOLDER [--samples 600 3000] [--only NAME]
    python benchmarks/equal_power.py FOLDER --equal [--runs 100] [--fresh]

The first prints the table of docs/equal.md: pairs of loaders with one planted difference, at equal and unequal seeds.
The second judges pairs of equal loaders, each `--runs` times, by other epochs of the same observations, or by seeds of
their own. FOLDER holds photographs in class folders; 3,000 samples are views of 600 files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import arguments, head, row
from PIL import Image

import headrace as hr
from headrace.compare import Judgement, LoaderObservation, judge, observe

SIDE = 48
IMAGE, VIEW = hr.Image(), hr.Resize((SIDE, SIDE))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
JITTER = hr.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
WEAKER = ("brightness", "contrast", "saturation")
Change = Callable[[dict[str, Any], np.random.Generator], dict[str, Any]]


@cache
def pictures(folder: Path, count: int) -> list[np.ndarray]:
    """Return uint8[120, 160, 3] pictures: the photographs, then their corners."""
    files = sorted(folder.rglob("*.jpg"))[: min(count, 600)]
    boxes = [(0, 0, 1, 1), (0, 0, 0.7, 0.7), (0.3, 0.3, 1, 1), (0, 0.3, 0.7, 1), (0.3, 0, 1, 0.7)]
    found = []
    for left, top, right, bottom in boxes[: -(-count // len(files))]:
        for file in files:
            with Image.open(file) as image:
                w, h = image.size
                box = (left * w, top * h, right * w, bottom * h)
                found.append(np.asarray(image.convert("RGB").resize((160, 120), Image.Resampling.BILINEAR, box=box)))
    return found[:count]


@cache
def masks(folder: Path, count: int) -> list[np.ndarray]:
    """Return uint8[120, 160] masks of five labels, which follow the luminance."""
    smooth = [
        Image.fromarray(each).convert("L").resize((20, 15)).resize((160, 120)) for each in pictures(folder, count)
    ]
    return [(np.asarray(each) // 52 * 3).astype(np.uint8) for each in smooth]


def encoded(arrays: list[np.ndarray]) -> list[bytes]:
    """Return PPM and PGM files, which cost nothing to decode."""
    kinds = {2: b"P5", 3: b"P6"}
    return [b"%s %d %d 255\n" % (kinds[each.ndim], each.shape[1], each.shape[0]) + each.tobytes() for each in arrays]


@dataclass(frozen=True)
class Made:
    """A loader of one pipeline, whose batches a function may change."""

    folder: Path
    count: int
    seed: int = 0
    image: Any = IMAGE
    view: Any = VIEW
    augment: tuple[Any, ...] = ()
    change: Change | None = None
    source: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None
    rows: Callable[[int], Any] = np.arange
    shuffle: bool = True
    threads: int = 2
    key: bool = True
    mask: bool = False
    drop_last: bool = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        images = pictures(self.folder, self.count)
        columns: dict[str, Any] = {"image": encoded(images if self.source is None else self.source(images))}
        columns["label"] = [n % 10 for n in range(self.count)]
        columns["key"] = [f"{n:05}.jpg" for n in range(self.count)]
        fields = {"image": self.image, "label": hr.Label(), "key": hr.Raw()}
        if self.mask:
            columns["mask"] = encoded(masks(self.folder, self.count))
            fields["mask"] = hr.Mask()
        loader = hr.Loader(
            hr.open(columns).select(self.rows(self.count)), fields, view=self.view, augment=list(self.augment) or None,
            batch_size=50, shuffle=self.shuffle, seed=self.seed, threads=self.threads,
            remainder="drop" if self.drop_last else "short",
        )  # fmt: skip
        loader.set_epoch(self.epoch)
        draw = np.random.default_rng((self.seed, self.epoch))
        for batch in loader:
            found = {name: np.asarray(value) if torch.is_tensor(value) else value for name, value in batch.items()}
            found = found if self.change is None else self.change(found, draw)
            if not self.key:
                del found["key"]
            yield found

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        object.__setattr__(self, "epoch", epoch)


def image_change(function: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda batch, _: {**batch, "image": function(batch["image"])}


def numbers(batch: dict[str, Any]) -> np.ndarray:
    return np.array([int(key[:5]) for key in batch["key"]])


def tokens(batch: dict[str, Any], _: Any, swap: bool = False) -> dict[str, Any]:
    ids = np.stack([np.random.default_rng(n).integers(0, 30000, 24) for n in numbers(batch).tolist()])
    if swap:
        ids[:, [3, 4]] = ids[:, [4, 3]]
    return {**batch, "tokens": ids}


def captions(batch: dict[str, Any], draw: np.random.Generator, choices: int = 5) -> dict[str, Any]:
    return {**batch, "text": [f"caption {draw.integers(choices)} of {key}" for key in batch["key"]]}


def one_hot(batch: dict[str, Any], _: Any, smoothing: float = 0.0) -> dict[str, Any]:
    return {**batch, "label": np.eye(10, dtype=np.float32)[batch["label"]] * (1 - smoothing) + smoothing / 10}


def label_change(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Change:
    return lambda batch, _: {**batch, "label": function(batch["label"], numbers(batch))}


def blurred_mask(batch: dict[str, Any], _: Any) -> dict[str, Any]:
    mask = batch["mask"]
    return {**batch, "mask": ((mask.astype(np.int64) + np.roll(mask, 1, axis=-1) + 1) // 2).astype(mask.dtype)}


def shifted(images: list[np.ndarray]) -> list[np.ndarray]:
    return [np.concatenate([each[:, 1:], each[:, -1:]], axis=1) for each in images]


def one_replaced(images: list[np.ndarray]) -> list[np.ndarray]:
    return [*images[:7], images[100], *images[8:]]


def without_antialias(batch: dict[str, Any], _: Any) -> dict[str, Any]:
    images = torch.nn.functional.interpolate(torch.from_numpy(batch["image"]).float(), (SIDE, SIDE), mode="bilinear")
    return {**batch, "image": images.round().to(torch.uint8).numpy()}


def changed(made: Made, **more: Any) -> tuple[Made, Made]:
    return made, replace(made, **more)


def pairs(made: Made) -> dict[str, tuple[Made, Made]]:
    """Return the pairs with one planted difference, by name."""
    crop = replace(made, view=hr.RandomResizedCrop(SIDE, scale=(0.5, 1), flip=0.5))
    wide = replace(made, view=hr.RandomResizedCrop(SIDE, flip=0.5))
    floats = hr.Image(dtype="float32", normalize=IMAGENET)
    normal, fixed = replace(crop, image=floats), replace(made, image=floats)
    jitter = replace(crop, augment=(JITTER,))

    def mean(value: float) -> Any:
        return hr.Image(dtype="float32", normalize=((value, 0.456, 0.406), IMAGENET[1]))

    deviation = hr.Image(dtype="float32", normalize=(IMAGENET[0], (0.229 * 1.03, 0.224, 0.225)))
    rounded, truncated = (
        image_change(lambda images, how=how: how(images * np.float32(0.5)).astype(np.uint8))
        for how in (np.round, np.floor)
    )
    smoothed = image_change(lambda images: (images + np.roll(images, 1, axis=-1)) / 2)
    masked = replace(crop, mask=True)
    whole, next_labels = replace(made, view=None), label_change(lambda labels, _: (labels + 1) % 10)
    return {
        "flip lost": changed(crop, view=replace(crop.view, flip=0.0)),
        "flip lost, windows of 8 to 100 %": changed(wide, view=replace(wide.view, flip=0.0)),
        "flip lost, no crop": changed(replace(made, view=hr.Resize((SIDE, SIDE), flip=0.5)), view=VIEW),
        "vertical flip lost": (replace(crop, view=[crop.view, hr.RandomVerticalFlip()]), crop),
        "BGR, fixed": changed(made, change=image_change(lambda images: images[:, ::-1])),
        "BGR, drawn": changed(crop, change=image_change(lambda images: images[:, ::-1])),
        "no antialiasing, fixed": (made, replace(whole, change=without_antialias)),
        "nearest, drawn": changed(crop, image=hr.Image(filter="nearest")),
        "crop off by one pixel, fixed": changed(made, source=shifted),
        "crop off by one pixel, drawn": changed(crop, source=shifted),
        "mean 0.47 for 0.485, fixed": changed(fixed, image=mean(0.47)),
        "mean 0.47 for 0.485, drawn": changed(normal, image=mean(0.47)),
        "mean off by one level, drawn": changed(normal, image=mean(0.485 - 1 / 255)),
        "deviation off by 3 %, fixed": changed(fixed, image=deviation),
        "deviation off by 3 %, drawn": changed(normal, image=deviation),
        "jitter of 0.4 for 0.3": changed(jitter, augment=(replace(JITTER, **dict.fromkeys(WEAKER, 0.3)),)),
        "brightness 0.4 for 0.3": changed(jitter, augment=(replace(JITTER, brightness=0.3),)),
        "hue lost": changed(jitter, augment=(replace(JITTER, hue=0.0),)),
        "mask filter": changed(masked, change=blurred_mask),
        "labels off by one": changed(crop, change=next_labels),
        "one label of all": changed(crop, change=label_change(lambda labels, n: np.where(n == 7, 3, labels))),
        "labels off by one, no key": changed(replace(crop, key=False), change=next_labels),
        "order": changed(crop, shuffle=False),
        "dtype": changed(fixed, change=image_change(lambda images: images.astype(np.float64))),
        "windows of 10 % less area": changed(crop, view=replace(crop.view, scale=(0.45, 0.9))),
        "windows of 10 % less area, 8 to 100 %": changed(wide, view=replace(wide.view, scale=(0.072, 0.9))),
        "aspect ratio lost": changed(crop, view=replace(crop.view, ratio=(1.0, 1.0))),
        "one sample replaced, fixed": changed(made, source=one_replaced),
        "one sample replaced, drawn": changed(crop, source=one_replaced),
        "one sample twice, one never": changed(crop, rows=lambda count: np.r_[np.arange(count - 1), 0]),
        "two tokens swapped": changed(replace(crop, change=tokens), change=partial(tokens, swap=True)),
        "one-hot, smoothed": changed(replace(crop, change=one_hot), change=partial(one_hot, smoothing=0.1)),
        "truncated for rounded": changed(replace(made, change=rounded), change=truncated),
        "blurred by a pixel, drawn": changed(normal, change=smoothed),
        "choice of captions lost": changed(replace(crop, change=captions), change=partial(captions, choices=1)),
    }  # fmt: skip


def pillow_twin(batch: dict[str, Any], _: Any) -> dict[str, Any]:
    sized = [
        Image.fromarray(each.transpose(1, 2, 0)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        for each in batch["image"]
    ]
    return {**batch, "image": np.stack([np.asarray(each) for each in sized]).transpose(0, 3, 1, 2)}


def equal_pairs(made: Made) -> dict[str, tuple[Made, Made]]:
    """Return the pairs of equal loaders, by name."""
    other = replace(made, seed=1)
    crop, wide = hr.RandomResizedCrop(SIDE, scale=(0.5, 1), flip=0.5), hr.RandomResizedCrop(SIDE, flip=0.5)
    floats = hr.Image(dtype="float32", normalize=IMAGENET)
    scaled = image_change(lambda images: (images.astype(np.float32) / 255 - np.float32(0.45)) / np.float32(0.22))
    jitter = replace(made, view=crop, image=floats, augment=(JITTER,))
    masked = replace(made, view=crop, mask=True, change=tokens)
    return {
        "other order": (made, other),
        "other order, no key": (replace(made, key=False), replace(other, key=False)),
        "Pillow": (made, replace(other, view=None, change=pillow_twin)),
        "floats unrounded and rounded": (
            replace(made, image=hr.Image(dtype="float32"), change=image_change(lambda images: 255 * images)),
            replace(other, change=image_change(lambda images: images.astype(np.float32))),
        ),
        "other threads": (replace(jitter, threads=1), replace(jitter, threads=3)),
        "other draws": (replace(made, view=crop), replace(other, view=crop)),
        "other draws, windows of 8 to 100 %": (replace(made, view=wide), replace(other, view=wide)),
        "other draws, jitter": changed(jitter, seed=1),
        "other draws, normalised by torch": (
            replace(made, view=crop, change=scaled), replace(other, view=crop, change=scaled),
        ),
        "other draws, masks and tokens": changed(masked, seed=1),
        "other flips": (
            replace(made, view=hr.Resize((SIDE, SIDE), flip=0.5)),
            replace(other, view=hr.Resize((SIDE, SIDE), flip=0.5)),
        ),
        "other captions": (
            replace(made, change=captions, drop_last=True), replace(other, change=captions, drop_last=True),
        ),
    }  # fmt: skip


def outcome(judgement: Judgement) -> str:
    if judgement.verdict == "different":
        return "found: " + ", ".join(dict.fromkeys(one.code for one in judgement.differences))
    if judgement.verdict == "equal":
        return "**missed**"
    samples = [one.samples for one in judgement.unseen]
    return "not enough seen" + (f": {max(samples):,}" if None not in samples else "")


def print_power(args: Any) -> None:
    columns = [(count, seed) for count in args.samples for seed in (0, 1)]
    print(head("planted difference", *(f"{count:,} samples, {'un' * seed}equal seeds" for count, seed in columns)))
    observed: dict[str, LoaderObservation] = {}
    for name in (name for name in pairs(Made(args.folder, 1)) if args.only in name):
        cells = []
        for count, seed in columns:
            before, after = pairs(Made(args.folder, count))[name]
            if (first := repr(before)) not in observed:
                observed[first] = observe("before", before)
            cells.append(outcome(judge(observed[first], observe("after", replace(after, seed=seed)))))
        print(row(name, *cells), flush=True)


def resampled(pair: tuple[Made, Made], runs: int) -> Iterator[tuple[LoaderObservation, LoaderObservation]]:
    """Yield two of twelve epochs of each loader; the same two if their seeds are the same."""
    draw = np.random.default_rng(0)
    epochs = [observe("equal", each, epochs=12).epochs for each in pair]
    for _ in range(runs):
        first = draw.permutation(12)[:2]
        second = first if pair[0].seed == pair[1].seed else draw.permutation(12)[:2]
        chosen = zip(epochs, (first, second), strict=True)
        one, other = (LoaderObservation("equal", tuple(each[n] for n in numbers)) for each, numbers in chosen)
        yield one, other


def redrawn(pair: tuple[Made, Made], runs: int) -> Iterator[tuple[LoaderObservation, LoaderObservation]]:
    """Yield two epochs of each loader at seeds of their own."""
    for run in range(runs):
        one, other = (observe("equal", replace(each, seed=each.seed + 2 * run)) for each in pair)
        yield one, other


def print_alarms(args: Any) -> None:
    print(head("equal loaders", "alarms", "not enough seen", "runs", "s"))
    for name, pair in equal_pairs(Made(args.folder, args.samples[0])).items():
        if args.only in name:
            began, verdicts = time.perf_counter(), []
            for one, other in (redrawn if args.fresh else resampled)(pair, args.runs):
                judgement = judge(one, other)
                verdicts.append(judgement.verdict)
                if judgement.differences:
                    print(judgement.differences)
            counts = (verdicts.count(verdict) for verdict in ("different", "not enough seen"))
            print(row(name, *counts, args.runs, f"{time.perf_counter() - began:.0f}"), flush=True)


def main() -> None:
    args = arguments(__doc__, "folder", samples=[600, 3000], equal=False, runs=100, fresh=False, only="")
    (print_alarms if args.equal else print_power)(args)


if __name__ == "__main__":
    main()
