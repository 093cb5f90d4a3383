"""The loader that the tests of frameworks run through them: 40 small images, seven batches an epoch, the last short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from loader_data import write_tar

import headrace as hr

STEPS = 7


def maker(folder: Path) -> Callable[..., hr.Loader]:
    """Makes loaders over one tar, written to `folder` unless it is there; all alike but for what overrides say."""
    tar = folder / "photos.tar"
    data = hr.open(tar if tar.exists() else write_tar(tar))
    fields = {"image": hr.Image(), "label": hr.Label(), "text": hr.Raw()}

    def make(**overrides: Any) -> hr.Loader:
        given = {"batch_size": 6, "shuffle": True, "seed": 5, "threads": 1}
        return hr.Loader(data, fields, view=hr.RandomResizedCrop(24, flip=0.5), **(given | overrides))

    return make
