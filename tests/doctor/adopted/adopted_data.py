"""Made data of the adopted scripts: class folders, captions, depth, masks and shards. Seeded; numpy and Pillow."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("beech", "larch", "maple", "spruce")
WORDS = [
    *("a", "the", "in", "on", "under", "of", "small", "large", "old", "green", "wet", "bare"),
    *("tree", "leaf", "branch", "trunk", "field", "road", "stone", "house"),
]
JPEG_SIZE = (500, 375)
DEPTH_SIZE = (640, 480)


def photograph(number: int, width: int, height: int) -> Image.Image:
    """Soft shapes under fine grain: a JPEG of it is about as large as a photograph's."""
    state = np.random.default_rng(number)
    shapes = Image.fromarray(state.integers(0, 256, (9, 12, 3), np.uint8)).resize((width, height), Image.BICUBIC)
    grain = state.normal(0, 6, (height, width, 1))
    return Image.fromarray((np.asarray(shapes) + grain).clip(0, 255).astype(np.uint8))


def jpeg(number: int, size: tuple[int, int] = JPEG_SIZE) -> bytes:
    """Encode a photograph."""
    target = io.BytesIO()
    photograph(number, *size).save(target, "JPEG", quality=88)
    return target.getvalue()


def png(image: Image.Image) -> bytes:
    """Encode without loss."""
    target = io.BytesIO()
    image.save(target, "PNG", compress_level=6)
    return target.getvalue()


def blobs(number: int, width: int, height: int, levels: int) -> np.ndarray:
    """Return a smooth map of whole numbers below `levels`."""
    coarse = Image.fromarray(np.random.default_rng(number).random((7, 9), np.float32))
    smooth = np.asarray(coarse.resize((width, height), Image.BICUBIC)).clip(0, 0.999)
    return np.floor(smooth * levels).astype(np.uint16)


def class_folder(folder: Path, images: int) -> None:
    """Write `CLASS/NUMBER.jpg`, in turn for each class."""
    for number in range(images):
        path = folder / CLASSES[number % len(CLASSES)] / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))


def captioned(folder: Path, images: int) -> None:
    """Write `images/NUMBER.jpg`, `captions.csv` (image, caption) and a `tokenizer.json` of their words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    (folder / "images").mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    with (folder / "captions.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption"])
        for number in range(images):
            (folder / "images" / f"{number:05d}.jpg").write_bytes(jpeg(number))
            rows.writerow([f"images/{number:05d}.jpg", " ".join(draw.choices(WORDS, k=draw.randint(5, 24)))])
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(set(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def depth_archive(folder: Path, pairs: int) -> None:
    """Write `depth.tar`: `NUMBER.rgb.png`, and `NUMBER.depth.png` in millimetres, 16 bits, 0 where nothing is known."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "depth.tar", "w") as tar:
        for number in range(pairs):
            depth = blobs(number, *DEPTH_SIZE, 9000) + 500
            depth[np.random.default_rng(number).random(depth.shape) < 0.05] = 0
            image = png(photograph(number, *DEPTH_SIZE))
            for name, data in (
                (f"{number:05d}.rgb.png", image),
                (f"{number:05d}.depth.png", png(Image.fromarray(depth))),
            ):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def shards(folder: Path, images: int, each: int = 64) -> None:
    """Write `train-NUMBER.tar` of `KEY.jpg`, `KEY.cls` and `KEY.json`, as webdataset reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard, first in enumerate(range(0, images, each)):
        with tarfile.open(folder / f"train-{shard:04d}.tar", "w") as tar:
            for number in range(first, min(first + each, images)):
                label = number % len(CLASSES)
                parts = {"jpg": jpeg(number), "cls": str(label).encode(), "json": json.dumps({"id": number}).encode()}
                for end, data in parts.items():
                    info = tarfile.TarInfo(f"{number:06d}.{end}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def voc(folder: Path, pairs: int) -> None:
    """Write `VOCdevkit/VOC2012` as torchvision reads it: photographs, palette masks and the names of a split."""
    root = folder / "VOCdevkit" / "VOC2012"
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / name).mkdir(parents=True, exist_ok=True)
    names = [f"2012_{number:06d}" for number in range(pairs)]
    for number, name in enumerate(names):
        (root / "JPEGImages" / f"{name}.jpg").write_bytes(jpeg(number))
        mask = Image.fromarray(blobs(number, *JPEG_SIZE, 21).astype(np.uint8))
        mask.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
        (root / "SegmentationClass" / f"{name}.png").write_bytes(png(mask))
    (root / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join([*names[1:], ""]))


MAKERS = {
    "class_folder": class_folder,
    "captioned": captioned,
    "depth_archive": depth_archive,
    "shards": shards,
    "voc": voc,
}
DATA_OF = {
    "folder_v1": "class_folder",
    "folder_v2": "class_folder",
    "folder_albumentations": "class_folder",
    "folder_timm": "class_folder",
    "captions_csv": "captioned",
    "depth_tar": "depth_archive",
    "shards_webdataset": "shards",
    "hf_images": "class_folder",
    "timm_loader": "class_folder",
    "voc_segmentation": "voc",
}
"""What each script reads."""


if __name__ == "__main__":
    MAKERS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
