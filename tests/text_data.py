"""Captions, a tokenizer that is trained on the spot, and images with both; nothing comes from a network."""

from __future__ import annotations

import io
import json
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
from loader_data import COUNT, encoded
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

PAD, BEGIN, END = "<pad>", "<s>", "</s>"
MISSING, NOT_UTF8, EMPTY = 3, 17, 8
"""Samples of `write_tar` whose caption is none, damaged, and empty."""

_WORDS = (
    "a",
    "the",
    "red",
    "small",
    "bird",
    "cat",
    "street",
    "Übergröße",
    "字",
    "🙂",
    "runs",
    "under",
    "umbrella",
    "it's",
)


def caption(number: int) -> str:
    rng = np.random.default_rng(number)
    return " ".join(rng.choice(_WORDS, rng.integers(1, 15)))


CAPTIONS = [caption(number) if number != EMPTY else "" for number in range(COUNT)]


@cache
def described() -> str:
    """The tokenizer's JSON: byte-level BPE with special tokens around, and no padding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[PAD, BEGIN, END], show_progress=False)
    tokenizer.train_from_iterator(CAPTIONS, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=ends)
    return tokenizer.to_str()


def tokenizer(**padding: object) -> Tokenizer:
    """With a pad token."""
    made = Tokenizer.from_str(described())
    made.enable_padding(pad_id=0, pad_token=PAD, **padding)
    return made


def expected(texts: list[str], *, max_length: int, length: int | None = None, left: bool = False) -> tuple:
    """ids and mask by the library itself, a text a call, with its own truncation and padding; `length`: None is that
    of the longest."""
    own = tokenizer()
    own.enable_truncation(max_length)
    own.no_padding()
    longest = max([1, *(len(own.encode(text).ids) for text in texts)])
    own.enable_padding(
        pad_id=0, pad_token=PAD, length=longest if length is None else length, direction="left" if left else "right"
    )
    found = [own.encode(text) for text in texts]
    return (
        np.array([each.ids for each in found], np.int64),
        np.array([each.attention_mask for each in found]).astype(bool),
    )


def is_trial(texts: list[str]) -> bool:
    """True for the call by which it is found out whether a function pads its rows: not with a dataset's texts."""
    return texts[0] == "a" and len(texts) <= 2 and not "".join(texts).strip("a ")


def whitespace(texts: list[str]) -> list[list[int]]:
    """A tokenizer in plain Python: words as the lengths of their texts."""
    return [[len(word) for word in text.split()] for text in texts]


def write_tar(path: Path, *, damaged: bool = False) -> Path:
    """Images with a caption (`.txt`) and an embedding (`.npy`) each. `damaged`: one without a caption, one not in
    UTF-8."""
    with tarfile.open(path, "w") as tar:
        for number in range(COUNT):
            extension, image = encoded(number)
            _add(tar, f"{number:04}.{extension}", image)
            if not (damaged and number == MISSING):
                text = b"caf\xe9" if damaged and number == NOT_UTF8 else CAPTIONS[number].encode()
                _add(tar, f"{number:04}.txt", text)
            _add(tar, f"{number:04}.npy", npy(embedding(number)))
    return path


def embedding(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(2, 3)).astype(np.float32)


def npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def write_manifest(path: Path, captions: list[list[str]]) -> Path:
    """A row a sample, with lists of captions and a text."""
    rows = [{"captions": texts, "text": texts[0] if texts else ""} for texts in captions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
