"""Two sources that differ in what holds them, how many samples they have, and how their fields are made."""

from __future__ import annotations

from pathlib import Path

from loader_data import write_folder, write_tar

import headrace as hr

GLOBAL_BATCH = 12
COUNTS = {"photos": 40, "scans": 14}
WEIGHTS = {"photos": 2, "scans": 1}
VIEW = hr.RandomResizedCrop(24, flip=0.5)
FIELDS = {
    "photos": {
        "image": hr.Image(dtype="float32", normalize=hr.IMAGENET),
        "label": hr.Label(),
        "key": hr.Raw(source="__key__"),
    },
    "scans": {
        "key": hr.Raw(source="__key__"),
        "image": hr.Image(dtype="float32", normalize=hr.Normalize((0.5,) * 3, (0.25,) * 3)),
        "label": hr.Label(),
    },
}


def write_places(root: Path) -> dict[str, hr.Dataset]:
    """A folder and a tar."""
    return {
        "photos": hr.open(write_folder(root / "photos", COUNTS["photos"])),
        "scans": hr.open(write_tar(root / "scans.tar", COUNTS["scans"])),
    }


def loader_of(places, name, **overrides):
    """One source, as a loader of its own."""
    given = {"view": VIEW, "batch_size": GLOBAL_BATCH, "shuffle": True, "threads": 2, "output": "numpy"}
    seed = sorted(COUNTS).index(name)
    return hr.Loader(places[name], overrides.pop("fields", FIELDS[name]), **(given | {"seed": seed} | overrides))


def factory(places, batches, *, weights=WEIGHTS, epoch="largest", seed=7, only=None, **options):
    """`only` overrides a source's own arguments, by name."""

    def make(**overrides):
        each = {name: options | overrides | (only or {}).get(name, {}) for name in places}
        sources = {name: loader_of(places, name, **each[name]) for name in places}
        return hr.mix(sources, weights=weights, batches=batches, epoch=epoch, seed=seed)

    return make
