"""Loaders of Headrace's own: whether they keep up, which stage of theirs limits, and what to change."""

from __future__ import annotations

from collections.abc import Iterator

from ..measure import BOUND, MAP, PYTHON, TEXT, Finding, LoaderProduction, TrainerView, feed_sums, own_name
from ..quantities import counted, duration, percent

LOADER_LIMIT, KEEPS_UP = "loader-limit", "loader-keeps-up"


def own_loader_findings(view: TrainerView, making: LoaderProduction, cores: float | None) -> Iterator[Finding]:
    """Say that the loader keeps up, or which of its stages limits it."""
    share = view.wait_share or 0.0
    took = f"{duration(making.batch_us)} of its threads' time a batch, {making.cores:.1f} cores used"
    name = own_name(next(one for one in view.trainer.loaders if one.number == making.loader))
    threads, work = counted(making.workers, "thread"), "works" if making.workers == 1 else "work"
    busy = f"{percent(making.busy)} of the time"
    if share < BOUND:
        yield Finding(KEEPS_UP, 0.0, f"{name} keeps up: its {threads} {work} {busy}.", took, "Leave it as it is.")
        return
    sums = feed_sums(view.training).get(making.loader)
    heaviest = max(making.stages, key=lambda part: part.share, default=None)
    most = "" if heaviest is None else f", {percent(heaviest.share)} of it {heaviest.category}"
    said = f"{name}'s {threads} {work} {busy}{most}"
    more = None if cores is None or making.workers >= int(cores) else int(cores)
    if sums is None:
        change = "Look at the stages of its threads: only less work a sample, or more cores, makes it faster."
        if more:
            change = f"Look at num_workers={more}: there are cores left."
    elif sums.limit == MAP:
        said = f"{name} waits for map= in {counted(sums.map_workers, 'map worker')}"
        change = f"Look at map_workers (now {sums.map_workers}), or at augmentations that the core does itself."
    elif sums.limit == TEXT:
        said = f"{name} waits for the tokenizer"
        change = "Look at a pack of tokens, or at cache=: the same text is tokenised in every epoch."
    elif sums.limit == PYTHON:
        said = f"{name}'s {threads} {work} only {busy}: Python holds {name} up"
        change = "Look at map_workers= for what map= and batch_map= do in Python, and at what else holds the GIL."
    elif sums.limit == "read":
        change = "Look at cache=, or at where the files lie: headrace stage copies them to a faster disk."
    elif sums.limit == "probe":
        change = "Look at headrace pack: the sizes of images are then known without opening each."
    elif more:
        change = f"Look at threads={more} (now {making.workers}): there are cores left for them."
    else:
        change = f"Look at cache=, a smaller size of the files, or headrace pack: {name} has a thread for each core."
    yield Finding(LOADER_LIMIT, share, f"{said}. {change}", took, change)
