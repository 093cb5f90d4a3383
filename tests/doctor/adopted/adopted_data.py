"""Made data of the adopted scripts: class folders, captions and shards. Seeded; numpy and Pillow."""

from __future__ import annotations

import csv
import io
import json
import random
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
