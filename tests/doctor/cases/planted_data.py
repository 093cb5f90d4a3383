"""Seeded data of the scripts with planted faults: photographs, archives, sentences."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from planted import made
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

PHOTOGRAPHS = 8
WORDS = [f"word{number}" for number in range(1000)]


def photograph(number: int, width: int, height: int) -> Image.Image:
    """Soft shapes under fine grain, so that a PNG of it is about as large as a photograph's."""
    random_state = np.random.default_rng(number)
    shapes = Image.fromarray(random_state.integers(0, 256, (6, 8, 3), np.uint8)).resize((width, height), Image.BICUBIC)
    grain = random_state.normal(0, 4, (height, width, 3))
    return Image.fromarray((np.asarray(shapes) + grain).clip(0, 255).astype(np.uint8))


def pngs(width: int, height: int) -> list[Path]:
    """Files of a few photographs."""

    def save(path: Path, number: int) -> None:
        photograph(number, width, height).save(path, "PNG", compress_level=6)

    names = [f"{width}x{height}-{number}.png" for number in range(PHOTOGRAPHS)]
    return [made(name, lambda path, number=number: save(path, number)) for number, name in enumerate(names)]


def archive(members: int, samples: list[bytes]) -> Path:
    """A tar of so many members; the samples lie evenly among empty ones, which keep it small."""

    def write(path: Path) -> None:
        every = members // len(samples)
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(members):
                is_sample = number % every == every - 1
                data = samples[number // every % len(samples)] if is_sample else b""
                info = tarfile.TarInfo(f"{number:06d}.bin")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
                tar.members.clear()  # type: ignore[attr-defined]  # or it keeps all of them

    return made(f"{members}-members-{len(samples)}-of-{len(samples[0])}.tar", write)


def sample_names(members: int, samples: int) -> list[str]:
    """Of those in such an archive that are not empty."""
    every = members // samples
    return [f"{number:06d}.bin" for number in range(every - 1, members, every)]


def random_bytes(count: int, size: int) -> list[bytes]:
    return [random.Random(number).randbytes(size) for number in range(count)]


def encoded_pngs(width: int, height: int) -> list[bytes]:
    return [path.read_bytes() for path in pngs(width, height)]


def sentence(number: int, words: int) -> str:
    return " ".join(random.Random(number).choices(WORDS, k=words))


def tokeniser() -> Any:
    model = Tokenizer(WordLevel({word: number for number, word in enumerate(["[PAD]", "?", *WORDS])}, unk_token="?"))
    model.pre_tokenizer = Whitespace()
    return model
