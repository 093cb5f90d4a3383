"""Names of stages and processes for sentences, and advice for each stage."""

from __future__ import annotations

from ..measure import (
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
    WaitCauses,
)
from ..session.model import ProbedProcess, Session

NAMES = {
    "read": "reading files",
    "remote": "remote reads",
    "lookup": "archive lookup",
    "scan": "scanning archive headers",
    "decode": "decode",
    "transform": "transforms",
    "tokenise": "tokenisation",
    "getitem": "the dataset's own code",
    "collate": "collate",
    "map": "the script's map function",
    "source": "the call for a batch",
    "python": "Python alongside the loader's threads",
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
_CONTENTS = (
    "Look at what a batch consists of: each tensor takes shared memory of its own, and everything else is pickled. "
    "Fewer tensors cost less, images as bytes, and no keys that the step does not use."
)
LOOK = {
    "read": "Look at where the files lie and how large they are: a local disk, fewer and larger files, or a page cache "
    "that holds them, are read faster.",
    "remote": "Look at how many requests a sample makes, and at whether they wait for each other: headrace.Loader over "
    "the store asks for them ahead, and cache= keeps them on a local disk.",
    "lookup": "Look at how members are found: tarfile reads its way through the archive, and each worker anew; "
    "an index of the members is read once.",
    "scan": "Look at how often archives are opened: their headers are read again each time; keep them open, or keep an "
    "index of their members.",
    "decode": "Look at the size at which images are stored against the size that is trained on, at draft or scaled "
    "decoding, and at a faster decoder.",
    "transform": "Look at the transforms that cost most: whether they run on the smallest image that will do, on "
    "uint8, and whether they could run on the device.",
    "tokenise": "Look at tokenising once, before training, or at a fast tokeniser that takes a batch at a time.",
    "getitem": "Look at the lines listed under the loader: time in the dataset's own code.",
    "collate": "Look at the collate function: the default one copies each sample once; padding to the longest and "
    "loops in Python cost more.",
    "source": "Look at what it does: unless it fetches ahead, nothing is trained meanwhile. A DataLoader with workers, "
    "or headrace.ThreadDataLoader, makes batches while the device computes; for slices of a memory map one thread is "
    "enough, with pin_memory=True for a GPU.",
    "map": "Look at map_workers=, which runs it in processes, or at augmentations that the loader's core does itself.",
    "python": "Look at what map= and batch_map= do in Python, and at map_workers=.",
    "serialise": _CONTENTS,
    "wait": "Look at what the workers share: locks, connections, servers.",
    "other": "Look at the lines listed under the loader.",
    START_UP: "Look at what is done when a worker starts: imports under spawn and forkserver, opening the "
    "dataset; persistent_workers=True starts them once.",
    SHUT_DOWN: "Look at what workers do when they end; persistent_workers=True lets them persist.",
    PICKLE: _CONTENTS,
    UNPICKLE: _CONTENTS,
    PIN: "Look at the number of tensors in a batch: each is pinned by itself.",
    SAMPLER: "Look at the sampler: it runs in the training thread, in each next().",
    UNKNOWN: "Look at the notes: workers that could not be observed.",
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


def look(cause: str) -> str:
    """Return advice for a stage. Categories of a newer probe get a generic sentence."""
    return LOOK.get(category(cause), "Look at the stage in the trace that --trace writes.")


def who(session: Session, process: ProbedProcess) -> str:
    """Return text such as `Worker 1 (process 4711)`."""
    for maker in session.makers:
        if (maker.host, maker.pid) == (process.host, process.pid) and maker.worker is not None:
            return f"Worker {maker.worker} (process {process.pid})"
    return f"Process {process.pid}"


def by_category(causes: WaitCauses) -> list[TimePart]:
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
