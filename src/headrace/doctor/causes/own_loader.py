"""Headrace's own loaders: whether they keep up, and what limits them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.cause import Cause, of_steps
from headrace.doctor.causes.remote_reads import store_words
from headrace.doctor.measure import (
    BOUND,
    MAP,
    PYTHON,
    STORE,
    TEXT,
    FeedSums,
    Finding,
    LoaderProduction,
    TrainerView,
    feed_sums,
    host_of,
    own_name,
)
from headrace.doctor.quantities import counted, duration, percent
from headrace.doctor.session.model import Session

KEEPS_UP = "loader-keeps-up"
ADVICE = {
    TEXT: "Look at a pack of tokens, or at cache=: the same text is tokenised in every epoch.",
    PYTHON: "Look at map_workers= for what map= and batch_map= do in Python, and at what else holds the GIL.",
    "read": "Look at cache=, or at where the files lie: headrace stage copies them to a faster disk.",
    "probe": "Look at headrace pack: the sizes of images are then known without opening each.",
}
"""Advice by the limit of a Headrace loader."""


def own_loader_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield for each loader that it keeps up, or the stage that limits it."""
    host, share = host_of(session, view.trainer), view.wait_share or 0.0
    for making in view.awaited_production:
        if not making.threads:
            continue
        took = f"{duration(making.batch_us)} of its threads' time a batch, {making.cores:.1f} cores used"
        name = own_name(next(one for one in view.trainer.loaders if one.number == making.loader))
        sums = feed_sums(view.training).get(making.loader)
        if share < BOUND:
            yield Finding(KEEPS_UP, 0.0, f"{name} keeps up: its {_busy(making)}.", took, "Leave it as it is.")
        elif sums is not None and sums.limit == STORE:
            said, took, change = store_words(name, sums)
            yield Finding("loader-limit", share, f"{said}. {change}", took, change)
        else:
            said, change = _limit(name, making, sums, None if host is None else host.cores)
            yield Finding("loader-limit", share, f"{said}. {change}", took, change)


def _busy(making: LoaderProduction, only: str = "") -> str:
    threads = f"{counted(making.workers, 'thread')} {'works' if making.workers == 1 else 'work'}"
    return f"{threads} {only}{percent(making.busy)} of the time"


def _limit(name: str, making: LoaderProduction, sums: FeedSums | None, cores: float | None) -> tuple[str, str]:
    """Return a sentence on what limits a loader, and the advice."""
    limit, map_workers = ("", 0) if sums is None else (sums.limit, sums.map_workers)
    most = "" if not making.stages else f", {percent(making.stages[0].share)} of it {making.stages[0].category}"
    said, change = f"{name}'s {_busy(making)}{most}", ADVICE.get(limit, "")
    if limit == MAP:
        said = f"{name} waits for map= in {counted(map_workers, 'map worker')}"
        change = f"Look at map_workers (now {map_workers}), or at augmentations that the core does itself."
    elif limit == TEXT:
        said = f"{name} waits for the tokenizer"
    elif limit == PYTHON:
        said = f"{name}'s {_busy(making, 'only ')}: Python holds {name} up"
    if not change and cores is not None and making.workers < int(cores):
        option = "num_workers" if sums is None else "threads"
        change = f"Look at {option}={int(cores)} (now {making.workers}): there are cores left for them."
    most_likely = "Look at cache=, a smaller size of the files, or headrace pack: there is a thread for each core."
    return said, change or most_likely


CAUSE = Cause(
    findings={
        KEEPS_UP: "A loader of Headrace's own keeps up.",
        "loader-limit": "A loader of Headrace's own does not keep up; what limits it is named.",
    },
    find=of_steps(own_loader_findings),
    explains=("loader-limit",),
)
