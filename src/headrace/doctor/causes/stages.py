"""Stages of making a batch, parts of the wait for it, and lines of the script: their names, findings and advice."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.case import WORTH_SAYING
from headrace.doctor.causes.cause import APART, LEADS, Cause, of_steps
from headrace.doctor.measure import (
    BOUND,
    HELD_UP,
    PICKLE,
    PIN,
    REST,
    SAMPLER,
    SERIALISE,
    SHUT_DOWN,
    START_UP,
    UNKNOWN,
    UNPICKLE,
    WAIT_ORDER,
    Finding,
    TimePart,
    TrainerView,
    WaitSplit,
)
from headrace.doctor.quantities import duration, percent
from headrace.doctor.session.model import ProbedProcess, Session
from headrace.doctor.session.trainers import LoaderFacts

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
    sums = []
    for name, parts in groups.items():
        us, share = sum(part.us for part in parts), sum(part.share for part in parts)
        sums.append(TimePart(parts[0].name if parts[0].share >= OF_STAGE * share else name, us, share))
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
    "parse": "Look at the text of each sample, which every epoch parses again: keep numbers as .npy, Arrow or a memory "
    "map, and records in one table.",
    "transform": "Look at the transforms that cost most: whether they run on the smallest image that will do, on "
    "uint8, and whether they could run on the device.",
    "tokenise": "Look at tokenising once, before training, or at a fast tokeniser that takes a batch at a time.",
    "getitem": "Look at the lines listed under the loader: time in the dataset's own code.",
    "collate": "Look at the collate function: the default one copies each sample once; padding to the longest and "
    "loops in Python cost more.",
    "wait": "Look at what the workers share: locks, connections, servers.",
    PIN: "Look at the number of tensors in a batch: each is pinned by itself.",
    UNKNOWN: "Look at the notes: workers that could not be observed; a Loader of Headrace's says by its stats().limit "
    "what it waits for.",
}
OF_STORAGE = ("read", "remote", "lookup", "scan", "wait")
"""Categories of stages in which a worker waits for shards, or for locks around shards."""
LIBRARIES = {
    "litdata": "Look at max_pre_download= (chunks ahead) of LitData's StreamingDataset, a cache that holds the dataset "
    "(max_cache_size=, cache_dir= on a local disk), num_workers= of the StreamingDataLoader, and larger chunks.",
    "streaming": "Look at predownload= (samples ahead) of the StreamingDataset, a local= on a fast disk with a "
    "cache_limit= that holds the dataset, batch_size= of the dataset, and num_workers=.",
}
"""Advice by the library of a dataset that downloads and caches shards itself."""
SAID_ELSEWHERE = {START_UP, SHUT_DOWN, PICKLE, UNPICKLE, SAMPLER, *map(category, (SERIALISE, REST))}
"""Causes of a wait without a finding: the verdict names them, or `respawn` covers them."""
COSTLY_LINE = "costly-line"
MOST_LINES = 4


def stage_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield causes of the loop's wait by their share of a step, in CPU time: a GPU still behind waits for less."""
    share, each = view.wait_share or 0.0, each_words(view)
    for cause in by_category(view.causes):
        head = category(cause.name)
        if cause.share * share < WORTH_SAYING or head in SAID_ELSEWHERE:
            continue
        is_stage = head not in WAIT_ORDER
        by = ", by the stages of the batches that were waited for" if is_stage else ""
        yield Finding(
            code=f"stage-{head}" if is_stage else head.replace(" ", "-"),
            weight=cause.share * share,
            text=f"{percent(cause.share)} of the wait for data is {named(cause.name)}.",
            evidence=f"{duration(cause.us)} {each}{by}",
            advice=source_advice(view, cause.name),
        )


def source_advice(view: TrainerView, cause: str) -> str:
    """Return advice for a step that waits for `cause`: the script's own line, or the options of a known library."""
    lines = [line for making in view.batch_production[:1] for line in making.lines[:1]]
    if lines and category(cause) == "getitem" and cause == by_category(view.causes)[0].name:
        return f"Look at {place_words(lines[0].place)}: that line is {percent(lines[0].share)} of making a batch."
    library = ""
    if category(cause) in OF_STORAGE and view.batch_production:
        library = _streaming_library(view.loader(view.batch_production[0].loader))
    return LIBRARIES.get(library) or LOOK.get(category(cause), "Look at the stage in the HTML page.")


def _streaming_library(loader: LoaderFacts | None) -> str:
    """Return the library of a dataset, or of its base class, that downloads and caches shards itself; else empty."""
    facts = {} if loader is None else loader.facts
    bases = ((facts.get("described") or {}).get("dataset") or {}).get("bases") or []
    libraries = (str(name).partition(".")[0] for name in [facts.get("dataset"), *bases])
    return next((one for one in libraries if one in LIBRARIES), "")


def line_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the costly lines of the loader most waited for, weighing 5 % or more of steps, heaviest first."""
    wait = view.wait_share or 0.0
    making = next((one for one in view.batch_production if one.loader in view.training.fed), None)
    for line in [] if making is None or wait < BOUND else making.lines[:MOST_LINES]:
        if line.share * wait < BOUND:
            return
        yield Finding(
            code=COSTLY_LINE,
            weight=line.share * wait,
            text=f"{place_words(line.place)} is {percent(line.share)} of making a batch.",
            evidence="by stack samples, with the library calls that the line makes",
            advice="",
        )


STAGES = Cause(
    findings={
        "stage-…": "A stage of making a batch, or a part of the wait that no stage explains, is 1 % of a step or more."
    },
    find=of_steps(stage_findings),
    order=LEADS,
)
LINES = Cause(
    findings={COSTLY_LINE: "A line of the script takes 5 % of a step or more in making batches, by stack samples."},
    find=of_steps(line_findings),
    order=APART,
)


OUT_OF_ORDER = "out-of-order"


def order_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find waits for the next batch in order while a later one is ready."""
    found = part_of_wait(view, HELD_UP)
    if found is not None:
        part, weight = found
        yield Finding(
            OUT_OF_ORDER,
            weight,
            f"{percent(part.share)} of the wait passes while a later batch is ready and the next in order is not.",
            f"{duration(part.us)} {each_words(view)}",
            "Look at the slow samples: one slow batch holds up those made after it. Where order does not matter, "
            "in_order=False (torch 2.6 on) hands out what is ready; a longer prefetch queue evens out rare slow "
            "batches.",
        )


ORDER = Cause(
    findings={OUT_OF_ORDER: "A later batch is ready while the next in order is not."},
    find=of_steps(order_findings),
    order=LEADS,
    explains=(OUT_OF_ORDER,),
)
