"""Loaders written by hand for the data of public scripts: what a perfect draft of the doctor's would be.

A function bears the name of a script in `scripts.py`, with underscores for hyphens. It takes the folder of the data and
the folder that the script runs in, and returns a `Made`. `run.py --oracle` compares each with samples of its script.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr

HALF = hr.Normalize((0.5,) * 3, (0.5,) * 3)
FLOAT = {"dtype": "float32"}
STORED = {"dtype": "float32", "exif": False}
"""An image as Pillow's `open` and `ToTensor` give it."""
PART = {
    "depth_anything": "image: resampled by OpenCV's bicubic filter, which no field has",
    "cyclegan": "B: a picture of another sample, drawn anew; a second Loader beside the first gives it",
    "bts": "image, depth: a fixed window, turned about the middle of the whole picture",
    "glpdepth": "image, depth: a strip of depth painted into every fourth picture of a process",
    "yolov5": "labels: boxes that follow a mosaic of four pictures",
}
"""What is left to the script of those that a Loader makes in part, as far as it is known."""
NONE = {
    "speech_commands": "sound",
    "snunet_cd": "turns by quarters",
    "mprnet": "turns by quarters",
    "basicsr": "turns by quarters",
    "yolov3": "boxes that follow imgaug's draws",
    "detr": "boxes and pictures under a choice of two random views",
    "monodepth2": "colours drawn once for several frames, at four scales",
}
"""Why no Loader makes the pictures of these."""


@dataclass(frozen=True)
class Made:
    """A Loader's arguments, and the script's batch as made of the Loader's."""

    data: Any
    fields: dict[str, Any]
    batch: Callable[[dict[str, Any]], Any]
    given: dict[str, Any] = field(default_factory=dict)

    def make_loader(self, batch_size: int | None = None, *, shuffle: bool = True) -> hr.Loader:
        return hr.Loader(self.data, self.fields, batch_size=batch_size or 1, shuffle=shuffle, **self.given)

    def batches(self, loader: hr.Loader) -> Any:
        return (self.batch(made) for made in loader)


def _pair(batch: dict[str, Any]) -> list[Any]:
    return [batch["image"], batch["label"]]


def _labelled(folder: Path, image: hr.Image, **given: Any) -> Made:
    return Made(hr.open(folder), {"image": image, "label": hr.Label()}, _pair, given)


def _listed(folder: Path) -> list[str]:
    """Return the paths below a folder in the order of a script that lists it."""
    return [str(folder / name) for name in os.listdir(folder)]


# Classes.


def imagenet(data: Path, code: Path) -> Made:
    image = hr.Image(**STORED, normalize=hr.IMAGENET)
    return _labelled(data / "train", image, view=hr.RandomResizedCrop(224, flip=0.5))


def timm(data: Path, code: Path) -> Made:
    image, jitter = hr.Image(exif=False), hr.ColorJitter(0.4, 0.4, 0.4)
    return _labelled(data / "train", image, view=hr.RandomResizedCrop(224, flip=0.5), augment=jitter)


def convnext(data: Path, code: Path) -> Made:
    image = hr.Image(**STORED, normalize=hr.IMAGENET, filter="bicubic")
    augment = [hr.TimmPolicy("rand-m9-mstd0.5-inc1"), hr.RandomErasing(0.25, value="random")]
    return _labelled(data / "train", image, view=hr.RandomResizedCrop(224, flip=0.5), augment=augment)


def _cifar(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    import pickle

    parts = [pickle.loads((folder / f"data_batch_{number}").read_bytes()) for number in range(1, 6)]
    pixels = np.concatenate([part["data"] for part in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), np.concatenate([part["labels"] for part in parts])


def pytorch_cifar(data: Path, code: Path) -> Made:
    image, label = _cifar(code / "data/cifar-10-batches-py")
    normalize = hr.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    fields = {"image": hr.Image(**FLOAT, normalize=normalize), "label": hr.Label()}
    view = hr.RandomCrop(32, padding=4, flip=0.5)
    return Made(hr.open({"image": image, "label": label}), fields, _pair, {"view": view})


def dcgan(data: Path, code: Path) -> Made:
    image = hr.Image(**STORED, normalize=HALF)
    return _labelled(data / "train", image, view=[hr.Resize(64), hr.CenterCrop(64)])


def yolov5_cls(data: Path, code: Path) -> Made:
    image = hr.Image(**FLOAT, normalize=hr.IMAGENET, filter="linear")
    augment = hr.ColorJitter(0.4, 0.4, 0.4)
    return _labelled(data / "train", image, view=hr.RandomResizedCrop(224, flip=0.5), augment=augment)


def stargan(data: Path, code: Path) -> Made:
    import random

    lines = (data / "attributes.txt").read_text().split("\n")
    places = [lines[1].split().index(name) for name in ("Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young")]
    rows = lines[2:]
    random.Random(1234).shuffle(rows)
    kept = [row.split() for row in rows[1999:]]
    columns = {
        "image": [str(data / "images" / row[0]) for row in kept],
        "label": [[float(row[1 + place] == "1") for place in places] for row in kept],
    }
    fields = {"image": hr.Image(**STORED, normalize=HALF), "label": hr.Array(dtype="float32")}
    view = [hr.RandomHorizontalFlip(), hr.CenterCrop(178), hr.Resize(128)]
    return Made(hr.open(columns), fields, _pair, {"view": view})


def chexnet(data: Path, code: Path) -> Made:
    rows = [line.split() for line in (code / "ChestX-ray14/labels/test_list.txt").read_text().splitlines()]
    columns = {
        "image": [str(code / "ChestX-ray14/images" / row[0]) for row in rows],
        "label": [[float(each) for each in row[1:]] for row in rows],
    }
    image = hr.Image(**STORED, normalize=hr.IMAGENET, view=[hr.Resize(256), hr.TenCrop(224)])
    return Made(hr.open(columns), {"image": image, "label": hr.Array(dtype="float32")}, _pair)


# Several views of a picture.


def _colours(*more: Any, strength: tuple[float, ...] = (0.4, 0.4, 0.4, 0.1)) -> list[Any]:
    return [hr.RandomApply([hr.ColorJitter(*strength)], p=0.8), hr.RandomGrayscale(0.2), *more]


def _blur(p: float, kernel: int = 23) -> hr.RandomApply:
    return hr.RandomApply([hr.GaussianBlur(kernel, sigma=(0.1, 2.0))], p=p)


def _two_views(data: Any, image: hr.Image) -> Made:
    fields = {"image": image, "label": hr.Label()}
    return Made(data, fields, lambda batch: [list(batch["image"].unbind(1)), batch["label"]])


def simsiam(data: Path, code: Path) -> Made:
    view, augment = hr.RandomResizedCrop(224, scale=(0.2, 1.0), flip=0.5), _colours(_blur(0.5))
    image = hr.Image(**STORED, normalize=hr.IMAGENET, view=view, augment=augment, copies=2)
    return _two_views(hr.open(data / "train"), image)


def supcon(data: Path, code: Path) -> Made:
    view, normalize = hr.RandomResizedCrop(64, scale=(0.2, 1.0), flip=0.5), hr.Normalize((0.5,) * 3, (0.25,) * 3)
    image = hr.Image(**STORED, normalize=normalize, view=view, augment=_colours(), copies=2)
    return _two_views(hr.open(data / "train"), image)


def simclr(data: Path, code: Path) -> Made:
    image, label = _cifar(data / "cifar-10-batches-py")
    blur = hr.GaussianBlur(3, sigma=(0.1, 2.0))
    augment = _colours(blur, strength=(0.8, 0.8, 0.8, 0.2))
    field = hr.Image(**FLOAT, view=hr.RandomResizedCrop(32, flip=0.5), augment=augment, copies=2)
    return _two_views(hr.open({"image": image, "label": label}), field)


def _crop(size: int, scale: tuple[float, float], *augment: Any, **given: Any) -> hr.Image:
    view = hr.RandomResizedCrop(size, scale=scale, flip=0.5)
    return hr.Image(source="image", **STORED, view=view, augment=list(augment), **given)


def barlowtwins(data: Path, code: Path) -> Made:
    given = {"normalize": hr.IMAGENET, "filter": "bicubic"}
    colours = _colours(strength=(0.4, 0.4, 0.2, 0.1))
    fields = {
        "first": _crop(224, (0.08, 1.0), *colours, _blur(1.0), **given),
        "second": _crop(224, (0.08, 1.0), *colours, _blur(0.1), hr.RandomSolarize(128, p=0.2), **given),
        "label": hr.Label(),
    }
    return Made(hr.open(data / "train"), fields, lambda batch: [[batch["first"], batch["second"]], batch["label"]])


def dino(data: Path, code: Path) -> Made:
    given = {"normalize": hr.IMAGENET, "filter": "bicubic"}
    colours = _colours(strength=(0.4, 0.4, 0.2, 0.1))
    fields = {
        "first": _crop(224, (0.4, 1.0), *colours, _blur(1.0), **given),
        "second": _crop(224, (0.4, 1.0), *colours, _blur(0.1), hr.RandomSolarize(128, p=0.2), **given),
        "local": _crop(96, (0.05, 0.4), *colours, _blur(0.5, 9), copies=8, **given),
        "label": hr.Label(),
    }
    return Made(
        hr.open(data / "train"),
        fields,
        lambda batch: [[batch["first"], batch["second"], *batch["local"].unbind(1)], batch["label"]],
    )


def swav(data: Path, code: Path) -> Made:
    given = {"normalize": hr.Normalize((0.485, 0.456, 0.406), (0.228, 0.224, 0.225))}
    colours = [hr.RandomApply([hr.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8), hr.RandomGrayscale(0.2)]
    fields = {
        "large": _crop(224, (0.14, 1.0), *colours, _blur(0.5), copies=2, **given),
        "small": _crop(96, (0.05, 0.14), *colours, _blur(0.5, 9), copies=4, **given),
    }
    return Made(hr.open(data / "train"), fields, lambda batch: [*batch["large"].unbind(1), *batch["small"].unbind(1)])


# Pictures and other pictures.


def unet(data: Path, code: Path) -> Made:
    import torch

    listed = [os.path.splitext(name)[0] for name in os.listdir(code / "data/imgs")]
    kept = torch.utils.data.random_split(listed, [36, 4], generator=torch.Generator().manual_seed(0))[0]
    names = [listed[place] for place in kept.indices]
    rows = {
        "image": [str(code / f"data/imgs/{name}.jpg") for name in names],
        "mask": [str(code / f"data/masks/{name}_mask.png") for name in names],
    }
    fields = {
        "image": hr.Image(**STORED, filter="bicubic"),
        "mask": hr.Mask(remap={255: 1}, dtype="int64"),
    }
    return Made(hr.open(rows), fields, dict, {"view": hr.Resize((160, 240))})


def deeplab(data: Path, code: Path) -> Made:
    root = data / "VOCdevkit/VOC2012"
    names = (root / "ImageSets/Segmentation/train.txt").read_text().split()
    rows = {
        "image": [str(root / f"JPEGImages/{name}.jpg") for name in names],
        "mask": [str(root / f"SegmentationClass/{name}.png") for name in names],
    }
    fields = {"image": hr.Image(**STORED, normalize=hr.IMAGENET), "mask": hr.Mask()}
    scales = [round(375 * by / 100) for by in range(50, 201)]
    view = [hr.RandomScale(scales), hr.RandomCrop(257, pad_if_needed=True, flip=0.5)]
    return Made(hr.open(rows), fields, lambda batch: [batch["image"], batch["mask"]], {"view": view})


def pranet(data: Path, code: Path) -> Made:
    pairs = hr.open({"image": data / "images", "mask": data / "masks"})
    fields = {
        "image": hr.Image(**STORED, normalize=hr.IMAGENET),
        "mask": hr.Image(**STORED, mode="L"),
    }
    return Made(pairs, fields, lambda batch: [batch["image"], batch["mask"]], {"view": hr.Resize((352, 352))})


def mimo_unet(data: Path, code: Path) -> Made:
    pairs = hr.open({"blur": data / "train/blur", "sharp": data / "train/sharp"})
    fields = {"blur": hr.Image(**STORED), "sharp": hr.Image(**STORED)}
    view = hr.RandomCrop(256, flip=0.5)
    return Made(pairs, fields, lambda batch: [batch["blur"], batch["sharp"]], {"view": view})


def srgan(data: Path, code: Path) -> Made:
    from torch.nn.functional import interpolate

    def batch(made: dict[str, Any]) -> list[Any]:
        low = interpolate(made["image"] * 255, 22, mode="bicubic", antialias=True).round().clamp(0, 255) / 255
        return [low, made["image"]]

    pictures = hr.open(_listed(code / "data/DIV2K_train_HR"))
    return Made(pictures, {"image": hr.Image(**STORED)}, batch, {"view": hr.RandomCrop(88)})


def espcn(data: Path, code: Path) -> Made:
    grey = {**STORED, "source": "image", "mode": "L"}
    fields = {
        "low": hr.Image(**grey, view=[hr.CenterCrop(256), hr.Resize((128, 128))]),
        "high": hr.Image(**grey, view=hr.CenterCrop(256)),
    }
    pictures = hr.open(_listed(code / "dataset/BSDS300/images/train"))
    return Made(pictures, fields, lambda batch: [batch["low"], batch["high"]])


def pix2pix(data: Path, code: Path) -> Made:
    root = code / "dataset/facades/train"
    names = os.listdir(root / "a")
    rows = {side: [str(root / side / name) for name in names] for side in ("a", "b")}
    fields = {side: hr.Image(**STORED, normalize=HALF, filter="bicubic") for side in ("a", "b")}
    view = [hr.Resize((286, 286)), hr.RandomCrop(256, flip=0.5)]
    return Made(hr.open(rows), fields, lambda batch: [batch["b"], batch["a"]], {"view": view})


def pix2pix_halves(data: Path, code: Path) -> Made:
    import torch

    def halves(batch: dict[str, Any]) -> dict[str, Any]:
        left, right = batch["image"].chunk(2, 3)
        is_turned = batch["turn"]["flip"][:, :1, None, None] != 0
        return {"A": torch.where(is_turned, right, left), "B": torch.where(is_turned, left, right)}

    root = code.parent.parent / "data/facades"
    files = [str(each) for split in ("train", "test") for each in sorted((root / split).iterdir())]
    fields = {"image": hr.Image(**STORED, normalize=HALF), "turn": hr.Geometry()}
    return Made(hr.open(files), fields, halves, {"view": hr.RandomHorizontalFlip()})


def cyclegan(data: Path, code: Path) -> Made:
    pictures = hr.open(sorted(map(str, (data / "train/A").iterdir())))
    fields = {"image": hr.Image(**STORED, normalize=HALF, filter="bicubic")}
    view = [hr.Resize((286, 286)), hr.RandomCrop(256, flip=0.5)]
    return Made(pictures, fields, lambda batch: {"A": batch["image"]}, {"view": view})


def adain(data: Path, code: Path) -> Made:
    pictures, view = hr.open(_listed(data / "content")), [hr.Resize((512, 512)), hr.RandomCrop(256)]
    return Made(pictures, {"image": hr.Image(**STORED)}, lambda batch: batch["image"], {"view": view})


def diffusion(data: Path, code: Path) -> Made:
    pictures, view = hr.open(data / "images"), [hr.Resize(64), hr.RandomCrop(64, flip=0.5)]
    fields = {"image": hr.Image(**STORED, normalize=HALF)}
    return Made(pictures, fields, lambda batch: {"input": batch["image"]}, {"view": view})


def denoising(data: Path, code: Path) -> Made:
    pictures = hr.open([str(each) for each in (data / "images").glob("**/*.jpg")])
    view = [hr.Resize(64), hr.RandomHorizontalFlip(), hr.CenterCrop(64)]
    return Made(pictures, {"image": hr.Image(**STORED)}, lambda batch: batch["image"], {"view": view})


def depth_anything(data: Path, code: Path) -> Made:
    lines = [line.split() for line in (code / "dataset/splits/vkitti2/train.txt").read_text().splitlines()]
    rows = {"depth": [line[1] for line in lines], "path": [line[0] for line in lines]}
    fields = {"depth": hr.Depth(1 / 100, valid=False, filter="nearest-opencv"), "path": hr.Raw()}
    view = [hr.Resize((196, 644)), hr.RandomCrop(196)]

    def batch(made: dict[str, Any]) -> dict[str, Any]:
        depth = made["depth"][:, 0]
        return {"depth": depth, "valid_mask": depth <= 80, "image_path": made["path"]}

    return Made(hr.open(rows), fields, batch, {"view": view})


# Pictures and texts, and no pictures.


def _captioned(data: Any, image: str, text: str) -> Made:
    import open_clip

    tokens = open_clip.get_tokenizer("RN50")
    clip = hr.Normalize((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    fields = {
        "image": hr.Image(source=image, **STORED, normalize=clip, filter="bicubic"),
        "text": hr.Raw(source=text, text=True),
    }
    given = {"view": hr.RandomResizedCrop(224, scale=(0.9, 1.0))}
    return Made(data, fields, lambda made: {"image": made["image"], "text": tokens(made["text"])}, given)


def open_clip_csv(data: Path, code: Path) -> Made:
    import csv

    with (data / "train.csv").open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    columns = {"filepath": [row[0] for row in rows], "title": [row[1] for row in rows]}
    return _captioned(hr.open(columns), "filepath", "title")


def open_clip_tars(data: Path, code: Path) -> Made:
    return _captioned(hr.open(str(data / "train-{000000..000001}.tar")), "image", "text")


def clip_simple(data: Path, code: Path) -> Made:
    import csv

    import transformers

    folder = code / "C:/Moein/AI/Datasets/Flicker-8k"
    with (folder / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    held_out = np.random.RandomState(42).choice(np.arange(100), size=20, replace=False)
    kept = [row for row in rows if int(row["id"]) < 100 and int(row["id"]) not in held_out]
    said = [row["caption"] for row in kept]
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(code / "distilbert-base-uncased"))
    encoded = tokenizer(said, padding=True, truncation=True, max_length=200)
    names = ("input_ids", "attention_mask")
    columns = {"image": [str(folder / "Images" / row["image"]) for row in kept], "caption": said}
    fields = {"image": hr.Image(**FLOAT, normalize=hr.IMAGENET, filter="linear"), "caption": hr.Raw()}
    fields |= {name: hr.Array(dtype="int64") for name in names}
    data = hr.open(columns | {name: encoded[name] for name in names})
    return Made(data, fields, dict, {"view": hr.Resize((224, 224))})


def dlrm(data: Path, code: Path) -> Made:
    import torch

    def batch(made: dict[str, Any]) -> list[Any]:
        places = torch.arange(len(made["y"])).expand(made["X_cat"].shape[1], -1)
        return [torch.log(made["X_int"] + 1), places, made["X_cat"].T, made["y"].view(-1, 1)]

    with np.load(data / "kaggleAdDisplayChallenge_processed.npz") as held:
        columns = {name: held[name][:-4] for name in ("X_int", "X_cat", "y")}
    fields = {"X_int": hr.Array(dtype="float32"), "X_cat": hr.Array(dtype="int64"), "y": hr.Array(dtype="float32")}
    return Made(hr.open(columns), fields, batch)


def pointnet(data: Path, code: Path) -> Made:
    root = code / "data/modelnet40_normal_resampled"
    classes = (root / "modelnet40_shape_names.txt").read_text().split()
    names = [(each.rpartition("_")[0], each) for each in (root / "modelnet40_train.txt").read_text().split()]
    columns = {
        "points": [str(root / kind / f"{name}.txt") for kind, name in names],
        "label": [classes.index(kind) for kind, _ in names],
    }

    def points(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        text = sample["points"].replace("\n", ",").rstrip(",")
        read = np.fromstring(text, np.float32, sep=",").reshape(-1, 6)[:1024, :3]
        read -= read.mean(axis=0)
        return sample | {"points": read / np.sqrt((read**2).sum(axis=1)).max()}

    fields = {"points": hr.Raw(text=True), "label": hr.Label(dtype="int32")}
    return Made(hr.open(columns), fields, lambda made: [made["points"], made["label"]], {"map": points})
