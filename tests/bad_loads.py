"""Loaders that are meant to fail, and what they must say: for the tests of bad input."""

from __future__ import annotations

import pytest
from loader_data import encode, photograph

import headrace as hr

JPEG = encode(photograph(1, 64, 48), quality=90)
PNG = encode(photograph(1, 64, 48), "PNG")
SIZED = hr.Resize((16, 20))


def load(data, fields=None, **options):
    given = {"view": SIZED, "batch_size": 8, "output": "numpy", "threads": 2}
    return hr.Loader(data, fields, **(given | options))


def folder_of(root, **files):
    """Files by stem, in the order given; jpg unless the bytes are a PNG's."""
    root.mkdir(exist_ok=True)
    for stem, data in files.items():
        suffix = "png" if data.startswith(b"\x89PNG") else "jpg"
        (root / f"{stem}.{suffix}").write_bytes(data)
    return root


def fails(error, loader, *texts):
    """Iterating raises `error`, and its message holds all of `texts`."""
    with pytest.raises(error) as caught:
        for _ in loader:
            pass
    says(caught, *texts)
    return caught.value


def says(caught, *texts):
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in: {caught.value}"
