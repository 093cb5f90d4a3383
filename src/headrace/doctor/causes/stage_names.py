"""Words for stages, lines and processes."""

from __future__ import annotations

from headrace.doctor.causes.case import WORTH_SAYING
from headrace.doctor.measure import (
    PICKLE,
    PIN,
    REST,
    SAMPLER,
    SERIALISE,
    SHUT_DOWN,
    START_UP,
    UNKNOWN,
    UNPICKLE,
    TimePart,
    TrainerView,
    WaitSplit,
)
from headrace.doctor.session.model import ProbedProcess, Session

NAMES = {
    "read": "reading files",
    "remote": "remote reads",
    "lookup": "archive lookup",
    "scan": "scanning archive headers",
    "decode": "decode",
    "parse": "parsing text",
    "transform": "transforms",
    "tokenise": "tokenisation",
    "getitem": "the dataset's own code",
    "collate": "collate",
    "serialise": "serialisation",
    "wait": "waiting for locks or other processes",
    "other": "time outside the stages",
    START_UP: "starting workers",
    SHUT_DOWN: "ending workers",
    PICKLE: "pickling in the workers",
    UNPICKLE: "receiving and unpickling",
    PIN: "pinning memory",
    SAMPLER: "drawing and sending indices",
    UNKNOWN: "batches whose making was not seen",
}
OF_STAGE = 0.8
"""Share of its category from which one stage represents the category."""


def category(cause: str) -> str:
    """Return the category of a stage, or the name of a part of the wait."""
    return cause.partition(":")[0]


def named(cause: str) -> str:
    """Return text such as `decode (PIL.Image.open)` for a stage, without labels that carry no information."""
    head, _, label = cause.partition(":")
    words = NAMES.get(head, head)
    return words if cause in (REST, SERIALISE) or label in ("", "rest", "fetch", words) else f"{words} ({label})"


def who(session: Session, process: ProbedProcess) -> str:
    """Return text such as `Worker 1 (process 4711)`."""
    for maker in session.makers:
        if (maker.host, maker.pid) == (process.host, process.pid) and maker.worker is not None:
            return f"Worker {maker.worker} (process {process.pid})"
    return f"Process {process.pid}"


def by_category(causes: WaitSplit) -> list[TimePart]:
    """Sum causes by category, heaviest first. A dominant stage gives its category its name."""
    groups: dict[str, list[TimePart]] = {}
    for part in causes.parts:
        groups.setdefault(category(part.name), []).append(part)
    sums = [
        TimePart(
            parts[0].name if parts[0].share >= OF_STAGE * sum(part.share for part in parts) else name,
            sum(part.us for part in parts),
            sum(part.share for part in parts),
        )
        for name, parts in groups.items()
    ]
    return sorted(sums, key=lambda part: -part.share)


def place_words(place: str) -> str:
    """Format `/home/ada/train.py:31:normalise` as `train.py:31 (normalise)`."""
    name, line, qualified = place.rpartition("/")[2].rsplit(":", 2)
    function = ".".join(part for part in qualified.split(".") if not part.startswith("<"))
    return f"{name}:{line} ({function})" if function else f"{name}:{line}"


def each_words(view: TrainerView) -> str:
    """Return text such as `of each step`."""
    return f"of each {view.training.unit}{' as the CPU sees it' if view.has_gpu else ''}"


def part_of_wait(view: TrainerView, name: str) -> tuple[TimePart, float] | None:
    """Return a part of the wait and its share of a step; None if that is too little to report."""
    part = None if view.split is None else next((one for one in view.split.parts if one.name == name), None)
    weight = 0.0 if part is None else part.share * (view.wait_share or 0.0)
    return None if part is None or weight < WORTH_SAYING else (part, weight)
