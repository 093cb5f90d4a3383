"""Planted faults of data are found by values, in forms that people write; correct datasets raise no alarm."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from made_reports import made_session
from PIL import Image, ImageOps
from probed import merged, run_probed
from torch.utils.data import DataLoader, Dataset, Sampler, Subset

from headrace.doctor.explain.look import read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.faults import find_faults, session_faults
from headrace.doctor.probe.described_values import described_loader
from headrace.doctor.probe.value_look import look_at_values
from headrace.doctor.session.trainers import LoaderFacts, TrainerPass

COUNT = 60
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, turned pictures, label images and depth maps."""
    made = tmp_path_factory.mktemp("faults")
    for number in range(12):
        state = np.random.default_rng(number)
        coarse = state.integers(0, 256, (16, 22, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((132, 96), Image.Resampling.BICUBIC)
        picture.save(made / f"{number}.png")
        exif = Image.Exif()
        exif[0x0112] = 6
        picture.save(made / f"turned{number}.png", exif=exif)
        labels = np.kron(state.integers(0, 4, (10, 14)), np.ones((10, 10)))[:96, :132]
        Image.fromarray((labels * 20).astype(np.uint8)).save(made / f"labels{number}.png")
    return made


class Samples(Dataset):
    """Samples of one function: of the folder, the sample's number and a random generator."""

    def __init__(self, folder: Path, make: Callable[..., Any], prefix: str = "") -> None:
        self.make = make
        self.paths = [str(folder / f"{prefix}{number % 12}.png") for number in range(COUNT)]
        self.masks = [str(folder / f"labels{number % 12}.png") for number in range(COUNT)]
        self.names = [f"s{number}" for number in range(COUNT)]
        self.targets = [number % 3 for number in range(COUNT)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.make(self, index)


def opened(samples: Samples, index: int) -> np.ndarray:
    with Image.open(samples.paths[index]) as picture:
        return np.asarray(picture.convert("RGB").resize((66, 48), Image.Resampling.BILINEAR))


def labels_of(samples: Samples, index: int, how: Any = Image.Resampling.NEAREST) -> np.ndarray:
    return np.array(Image.open(samples.masks[index]).resize((66, 48), how)).astype(np.int64)


def normalised(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((pixels / 255 - MEAN) / STD).permute(2, 0, 1).float()


def classified(samples: Samples, index: int) -> Any:
    return normalised(opened(samples, index)), samples.targets[index]


def segmented(samples: Samples, index: int) -> Any:
    flip = np.random.default_rng(torch.randint(1 << 30, ()).item()).random() < 0.5
    pixels, labels = opened(samples, index), labels_of(samples, index)
    step = -1 if flip else 1
    return {"image": normalised(pixels[:, ::step]), "mask": torch.from_numpy(labels[:, ::step].copy())}


def separately_flipped(samples: Samples, index: int) -> Any:
    first, second = (1 if value < 0.5 else -1 for value in torch.rand(2))
    pixels, labels = opened(samples, index)[:, ::first], labels_of(samples, index)[:, ::second]
    return {"image": normalised(pixels), "mask": torch.from_numpy(labels.copy())}


def separately_cropped(samples: Samples, index: int) -> Any:
    pixels, labels = np.asarray(Image.open(samples.paths[index])), np.asarray(Image.open(samples.masks[index]))
    tops, lefts = torch.randint(0, 32, (2,)).tolist(), torch.randint(0, 60, (2,)).tolist()
    image = pixels[tops[0] : tops[0] + 64, lefts[0] : lefts[0] + 64]
    mask = labels[tops[1] : tops[1] + 64, lefts[1] : lefts[1] + 64].astype(np.int64)
    return normalised(image), torch.from_numpy(mask)


def bilinear_labels(samples: Samples, index: int) -> Any:
    return normalised(opened(samples, index)), torch.from_numpy(labels_of(samples, index, Image.Resampling.BILINEAR))


def cv2_labels(samples: Samples, index: int) -> Any:
    labels = cv2.resize(cv2.imread(samples.masks[index], cv2.IMREAD_UNCHANGED), (52, 38))
    image = cv2.resize(cv2.imread(samples.paths[index]), (52, 38))[..., ::-1]
    return normalised(image.copy()), torch.from_numpy(labels.astype(np.int64))


def blue_first(samples: Samples, index: int) -> Any:
    return normalised(cv2.resize(cv2.imread(samples.paths[index]), (66, 48))), samples.targets[index]


def blue_first_by_hand(samples: Samples, index: int) -> Any:
    return {"x": normalised(opened(samples, index)[..., ::-1].copy()), "y": samples.targets[index]}


def twice(samples: Samples, index: int) -> Any:
    once = (opened(samples, index) / 255 - MEAN) / STD
    return torch.from_numpy((once - MEAN) / STD).permute(2, 0, 1).float(), samples.targets[index]


def undivided(samples: Samples, index: int) -> Any:
    return torch.from_numpy((opened(samples, index) - MEAN) / STD).permute(2, 0, 1).float(), samples.targets[index]


def divided_twice(samples: Samples, index: int) -> Any:
    return torch.from_numpy(opened(samples, index) / 255.0 / 255).permute(2, 0, 1).float(), samples.targets[index]


def divided_after(samples: Samples, index: int) -> Any:
    return classified(samples, index)[0] / 255, samples.targets[index]


def blue_first_divided_after(samples: Samples, index: int) -> Any:
    return blue_first(samples, index)[0] / 255, samples.targets[index]


def infinite(samples: Samples, index: int) -> Any:
    image = normalised(opened(samples, index))
    return image, torch.log(torch.tensor(float(samples.targets[index])))


def turned(samples: Samples, index: int) -> Any:
    picture = ImageOps.exif_transpose(Image.open(samples.paths[index]).convert("RGB"))
    return torch.from_numpy(np.array(picture.resize((48, 66)))).permute(2, 0, 1), samples.targets[index]


def masked_depth(samples: Samples, index: int) -> Any:
    depth = labels_of(samples, index).astype(np.float32)
    valid = depth > 0
    return {"image": normalised(opened(samples, index)), "depth": np.where(valid, depth, np.inf), "valid": valid}


def two_views(samples: Samples, index: int) -> Any:
    pixels = np.asarray(Image.open(samples.paths[index]))
    tops, lefts = torch.randint(0, 32, (2,)).tolist(), torch.randint(0, 60, (2,)).tolist()
    return [normalised(pixels[top : top + 64, left : left + 64]) for top, left in zip(tops, lefts, strict=True)]


def in_order(samples: Samples) -> Samples:
    samples.targets.sort()
    return samples


def listed_twice(samples: Samples) -> Samples:
    for column in (samples.paths, samples.masks, samples.names, samples.targets):
        column[-2:] = column[:2]
    return samples


def codes_of(loader: DataLoader, folder: Path) -> list[str]:
    look_at_values(loader, str(folder / "look"))
    look = read_look(folder / "look")
    described = {**described_loader(loader, None), "batch_size": loader.batch_size}
    return [fault.code for fault in find_faults(look, explain_look(look, most_s=60), described)]


FAULTY = {
    "separate flips": (separately_flipped, "misaligned"),
    "separate crops": (separately_cropped, "misaligned"),
    "bilinear labels of Pillow": (bilinear_labels, "invented-labels"),
    "bilinear labels of OpenCV": (cv2_labels, "invented-labels"),
    "OpenCV's order": (blue_first, "channel-order"),
    "reversed by hand": (blue_first_by_hand, "channel-order"),
    "normalised twice": (twice, "normalized-twice"),
    "not divided": (undivided, "normalized-twice"),
    "divided twice": (divided_twice, "normalized-twice"),
    "divided after the normalisation": (divided_after, "normalized-twice"),
    "divided after the normalisation of reversed channels": (blue_first_divided_after, "normalized-twice"),
    "logarithm of zero": (infinite, "non-finite"),
}
CORRECT = {
    "classification": classified,
    "segmentation": segmented,
    "depth with a mask": masked_depth,
    "two views": two_views,
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_of_values_is_found(name: str, folder: Path, tmp_path: Path) -> None:
    make, code = FAULTY[name]
    loader = DataLoader(Samples(folder, make), batch_size=6, shuffle=True)
    assert codes_of(loader, tmp_path) == [code]


@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_correct_dataset_raises_no_alarm(name: str, shuffle: bool, folder: Path, tmp_path: Path) -> None:
    loader = DataLoader(Samples(folder, CORRECT[name]), batch_size=6, shuffle=shuffle)
    assert codes_of(loader, tmp_path) == []


@pytest.mark.parametrize(("make", "codes"), [(classified, ["ignored-orientation"]), (turned, [])])
def test_pictures_that_their_files_say_are_turned(make: Any, codes: list[str], folder: Path, tmp_path: Path) -> None:
    assert codes_of(DataLoader(Samples(folder, make, "turned"), batch_size=6, shuffle=True), tmp_path) == codes


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


def mixed_pair(samples: Samples, index: int) -> Any:
    other = torch.randint(COUNT, ()).item()
    return (normalised(opened(samples, index)) + normalised(opened(samples, other))) / 2, samples.targets[index]


def permuted(samples: Samples, index: int) -> Any:
    return classified(samples, (index * 7 + 5) % COUNT)


@pytest.mark.parametrize(
    ("make", "breaks", "codes"),
    [
        (next_sample, "truncated", ["substituted-sample"]),
        (first_sample, "missing", ["substituted-sample"]),
        (next_sample, "", []),
        (mixed_pair, "", []),
        (permuted, "", []),
    ],
)
def test_a_sample_that_another_takes_the_place_of(make: Any, breaks: str, codes: list[str], tmp_path: Path) -> None:
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((66, 48), Image.Resampling.BICUBIC).save(tmp_path / f"{number}.png")
    samples = Samples(tmp_path, make)
    samples.paths = [str(tmp_path / f"{number}.png") for number in range(COUNT)]
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


@pytest.mark.parametrize(
    ("change", "options", "codes"),
    [
        (in_order, {}, ["class-order"]),
        (in_order, {"shuffle": True}, []),
        (in_order, {"batch_size": 1, "batch_sampler": ShuffledBatches()}, []),
        (lambda samples: Subset(in_order(samples), range(55)), {}, ["class-order"]),
        (listed_twice, {"shuffle": True}, ["duplicate-files"]),
        (lambda samples: samples, {"batch_size": 7, "drop_last": True}, ["never-visited"]),
        (lambda samples: samples, {"batch_size": 7, "drop_last": True, "shuffle": True}, []),
        (lambda samples: samples, {"batch_size": 6, "drop_last": True}, []),
    ],
)
def test_the_order_and_the_list_of_samples(change: Any, options: Any, codes: Any, folder: Path, tmp_path: Path) -> None:
    loader = DataLoader(change(Samples(folder, classified)), **{"batch_size": 6, **options})
    assert codes_of(loader, tmp_path) == codes


@pytest.mark.parametrize(
    ("epochs", "shuffle", "codes"),
    [
        ([0, 0, 0], True, ["same-order"]),
        ([0, 1], True, []),
        ([0, 0], False, []),
        ([0], True, []),
        ([None] * 2, True, []),
    ],
)
def test_a_distributed_sampler_without_set_epoch(epochs: list[int | None], shuffle: bool, codes: list[str]) -> None:
    sampler = {"class": "torch.utils.data.distributed.DistributedSampler", "attributes": {"shuffle": shuffle}}
    session = made_session(20)
    (trainer,) = session.trainers
    trainer.loaders = [LoaderFacts(0, {"described": {"sampler": sampler}})]
    trainer.passes = [TrainerPass(number, 0, 0, 0, 0, [], epoch) for number, epoch in enumerate(epochs)]
    assert [fault.code for fault in session_faults(session)] == codes


LOOP = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
sampler = DistributedSampler(range(8), num_replicas=2, rank=0)
loader = DataLoader(torch.arange(8.0)[:, None], sampler=sampler, batch_size=2)
for epoch in (0, 3):
    sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


def test_the_probe_writes_the_epoch_of_each_pass(tmp_path: Path) -> None:
    ran = run_probed([sys.executable, "-c", LOOP], tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [one.sampler_epoch for one in merged(tmp_path).trainers[0].passes] == [0, 3]
