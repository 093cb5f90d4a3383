"""What must hold before anything is timed."""

from __future__ import annotations

import importlib.util

import headrace as hr
from headrace.bench.listing import list_images
from headrace.bench.rounds import one_run
from headrace.errors import UsageError
from headrace.loader import available_cores
from headrace.tools.bench.against import check_name
from headrace.tools.bench.settings import Settings


def available_images(settings: Settings) -> int:
    """Count the dataset's images, having checked that both loaders can run and, with torch's DataLoader, would read the
    same ones. What a loader of the user's reads is theirs.

    Opening also builds a tar's index, so that every run finds it there.
    """
    check_torch()
    check_cores(settings.threads)
    if settings.against is not None:
        check_name(settings.against)
        one_run(settings, "yours", 0, only_check=True)
        return len(hr.open(settings.path))
    own, peer = len(hr.open(settings.path)), len(list_images(settings.path))
    if own != peer:
        raise UsageError(
            f"expected one image a sample in {settings.path}; headrace.open finds {own} samples, and {peer} files "
            "there are images by their names. Give a dataset with one image a sample."
        )
    return own


def check_torch() -> None:
    """Raise UsageError where the peer cannot be imported."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError("the comparison is with torch's DataLoader, and torch is not installed: pip install torch")


def check_cores(threads: int) -> None:
    """Raise UsageError where `threads` are more than the cores: the figures would not be at equal cores."""
    cores = available_cores()
    if threads > cores:
        raise UsageError(f"expected at most {cores} threads, the cores that this process may use; got {threads}.")
