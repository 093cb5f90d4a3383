"""Functions for `map=` in workers: at the top level of a module, so that spawned processes find them."""

from __future__ import annotations

import os

import numpy as np


def jitter(sample, rng):
    """Adds a small array that is drawn, and one of a page and more made of the image."""
    image = np.asarray(sample["image"])
    return sample | {"jitter": rng.random(2), "brighter": image * 0.5 + rng.random(), "pid": os.getpid()}


def no_pid(sample, rng):
    """The same whatever process it runs in."""
    made = jitter(sample, rng)
    del made["pid"]
    return made


def told(sample, rng):
    """Says on standard output that it begins."""
    os.write(1, b".")
    return no_pid(sample, rng)


def megabyte_of_text(sample, rng):
    """A result that has to be pickled, larger than a pipe holds."""
    return {"text": "x" * 1_000_000}


def unchanged(sample, rng):
    return sample


def every_kind(sample, rng):
    """Values of many types, some of them nested."""
    number = int(rng.integers(1000))
    return {
        "image": sample["image"],
        "label": sample["label"],
        "text": f"number {number}",
        "bytes": b"\0" * number,
        "count": number,
        "share": number / 1000,
        "odd": number % 2 == 1,
        "nothing": None,
        "boxes": [(number, 2.5), {"area": number}],
        "vector": np.arange(3) + number,
        "large": np.full((40, 40), number, np.int16),
    }


def fails_on_bees(sample, rng):
    if sample["label"] == 1:
        raise KeyError("no bees")
    return sample


class OddError(ValueError):
    """Cannot be made again from what it pickles."""

    def __init__(self, what, *, where):
        super().__init__(f"{what} at {where}")


def fails_oddly(sample, rng):
    raise OddError("trouble", where="home")
