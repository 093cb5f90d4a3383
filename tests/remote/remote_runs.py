"""Loaders over tars in a store and over the same tars on this machine, and their batches side by side."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from archives import add_file
from loader_data import encode, photograph
from servers import StoreServer

import headrace as hr

SAMPLES, TARS = 24, 3
VIEW = hr.RandomResizedCrop(32)
WINDOWED = hr.Windowed(block_samples=4, window_blocks=2)


def tars() -> dict[str, bytes]:
    """Return three tars of eight photographs each by their keys."""
    found = {}
    for part in range(TARS):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for at in range(part, SAMPLES, TARS):
                add_file(tar, f"{at:03}.jpg", encode(photograph(at, 60, 80), "JPEG"))
                add_file(tar, f"{at:03}.cls", str(at % 5).encode())
        found[f"shards/{part}.tar"] = out.getvalue()
    return found


CONTENT = tars()


def open_here(folder: Path) -> hr.Dataset:
    """Return the dataset of the same tars below a folder."""
    for key, data in CONTENT.items():
        (folder / key.rpartition("/")[2]).write_bytes(data)
    return hr.open(str(folder / "*.tar"))


def open_there(store: StoreServer, indices: Path, *, retry_for: float | None = None, **more: Any) -> hr.Dataset:
    """Return the dataset of the tars in the store. `indices`: the cache folder."""
    store.objects |= CONTENT
    options = store.options | more
    return hr.open("s3://bucket/shards/*.tar", store_options=options, cache=indices, retry_for=retry_for)


def loader(dataset: hr.Dataset, **options: Any) -> hr.Loader:
    given = {"view": VIEW, "batch_size": 5, "shuffle": True, "seed": 3, "output": "numpy", "threads": 2, **options}
    return hr.Loader(dataset, **given)


def assert_same(first: Iterable[Mapping[str, Any]], second: Iterable[Mapping[str, Any]]) -> None:
    for ours, theirs in zip(first, second, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert np.array_equal(ours[name], theirs[name]), name
