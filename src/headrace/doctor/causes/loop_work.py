"""The training loop's own work: on batches, in copies to the device, before the first step, and in evaluations."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import MEDIUM, WORTH, WORTH_SAYING, Case
from headrace.doctor.causes.cause import APART, LEADS, Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import FEW_LINES, ONE_LINE, SETTING
from headrace.doctor.causes.stages import place_words
from headrace.doctor.measure import (
    COPY,
    DATA_WORK,
    UNSEEN,
    WAIT,
    Finding,
    TrainerView,
    pass_blocks,
    pass_of,
    uses_gpu,
    whole_fact,
)
from headrace.doctor.quantities import counted, duration, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Factor, FeedSetup, StageChange, name_of

LOOP_WORK, BEFORE_MODEL = "data-work", "before-model"
MOST_LINES = 3
WORTH_A_LINE = 0.1
"""Minimum share of the samples for a line to be named."""


def loop_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the training thread's work on batches, and before the model is called."""
    share, unit = view.share(DATA_WORK), view.training.unit
    if share >= WORTH:
        yield Finding(
            LOOP_WORK,
            share,
            f"{percent(share)} of each {unit} is data work in the training loop itself, before the model is called"
            f"{_at_line(view)}.",
            _evidence(view, DATA_WORK),
            "Do it in the dataset, in collate_fn or in the loader: workers then do it while the model trains. What a "
            "GPU does faster, such as a cast or a normalisation, belongs after the copy to it.",
        )
    share = view.share(UNSEEN)
    if share >= WORTH and view.trainer.lines:
        yield Finding(
            BEFORE_MODEL,
            share,
            f"{percent(share)} of each {unit} passes before the model is called{_at_line(view)}.",
            _evidence(view, UNSEEN),
            "If that line makes batches: a DataLoader with workers makes them while the model trains.",
        )


def data_work(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose that workers do the loop's data work, if there is any."""
    us = case.part_us(DATA_WORK)
    if case.step_share(us) < WORTH or not case.workers:
        return None
    own_us = case.step_us - case.part_us(WAIT)
    computing_us = 0.0 if case.recorded is None else float(case.recorded.batches.compute.mean())
    more = 1 + us / max(case.batches_a_step, 1.0) / max(computing_us, 1.0)

    def change(setup: FeedSetup) -> FeedSetup:
        known = {name_of(one): setup.stages.get(name_of(one), StageChange()) for one in case.making.stages}
        after = {name: replace(one, cpu=one.cpu * more) for name, one in known.items()}
        return replace(setup, stages={**setup.stages, **after}, step=setup.step * max(1 - us / own_us, 0.0))

    return kind.tried(
        case,
        change,
        why=f"Data work in the loop takes {duration(us)} of a step{_at_line(case.view)}. Workers could do it while the "
        "model trains.",
        confidence=MEDIUM,
    )


def _at_line(view: TrainerView) -> str:
    """Return text such as `, most of it at train.py:31 (normalise)`; empty if no line was seen."""
    lines = [line for line in _lines(view) if line[1] >= WORTH_A_LINE]
    if not lines:
        return ""
    return f", {'most' if lines[0][1] >= 1 / 2 else percent(lines[0][1])} of it at {lines[0][0]}"


def _lines(view: TrainerView) -> list[tuple[str, float]]:
    whole = sum(line.us for line in view.trainer.lines)
    return [(place_words(line.place), line.us / whole) for line in view.trainer.lines[:MOST_LINES] if whole]


def _evidence(view: TrainerView, part: str) -> str:
    us = 0.0 if view.budget is None else next((one.us for one in view.budget.parts if one.name == part), 0.0)
    seen = [f"{percent(share)} at {place}" for place, share in _lines(view) if share >= WORTH_A_LINE]
    return "; ".join([f"{duration(us)} a {view.training.unit} on the training thread", *seen])


CAUSE = Cause(
    findings={
        LOOP_WORK: "The training loop itself works on batches for 2 % of a step or more.",
        BEFORE_MODEL: "2 % of a step or more passes before the model is called, where no source of batches was seen.",
    },
    find=of_steps(loop_findings),
    order=LEADS,
    remedies=[
        RemedyKind(
            LOOP_WORK,
            "Data work of the training loop done by the workers",
            FEW_LINES,
            data_work,
            hint="do it in __getitem__, in collate_fn, or before the loader in a pipeline",
            costs=("the same work for each worker's batches",),
        )
    ],
)


SLOW_START = "slow-start"
LEAST_US = 5e6
"""Reporting threshold: time before the first pass over a loader."""
MUCH = 0.5
"""Reporting threshold: share of that time which one line takes."""


def start_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find a line of the script that takes most of the time before the first step."""
    process = session.process_of(view.trainer)
    before_us = min((one.start for one in view.trainer.passes), default=0) - (0 if process is None else process.start)
    line = next(iter(view.trainer.before), None)
    if line is None or before_us < LEAST_US or line.us < MUCH * before_us:
        return
    yield Finding(
        SLOW_START,
        0.0,
        f"{duration(before_us)} pass before the first step, {percent(min(line.us / before_us, 1.0))} of it at "
        f"{place_words(line.place)}.",
        "by stack samples of the training process, with the library calls that the line makes",
        "Where it reads or decodes samples, do it in __getitem__, so that workers do it while the model trains, or "
        "once, into a file that each start maps.",
    )


START = Cause(
    findings={SLOW_START: "5 s or more pass before the first step, half of it at one line of the script."},
    find=of_steps(start_findings),
    order=APART,
)


EVALUATION_WAITS = "evaluation"


def evaluation_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find the share of time that evaluations take, the share that waits for their data, and the slowest loader."""
    spans = [span for step in view.training.steps for span in step.evaluations]
    spent = sum(span.end - span.start for span in spans)
    whole = view.training.total_us + spent
    share = spent / whole if whole else 0.0
    if share < WORTH_SAYING:
        return
    fetches, passes = view.trainer.fetches, pass_of(view.trainer)
    # The loop blocks on batches, and on workers that start and shut down.
    waits: list[tuple[float, float, int]] = [
        *zip(fetches.start, fetches.duration, fetches.pass_, strict=True),
        *((start, us, one.number) for one in view.trainer.passes for start, us in pass_blocks(one)),
    ]
    waited: Counter[int] = Counter()
    for start, blocked, pass_ in waits:
        row = bisect_right(spans, start, key=lambda span: span.start) - 1
        if row >= 0 and start < spans[row].end and pass_ in passes:
            waited[passes[pass_].loader] += round(blocked)
    us = sum(waited.values())
    loader = max(waited, key=lambda one: waited[one], default=None)
    facts = view.loader(loader) if loader is not None else None
    workers = None if facts is None else whole_fact(facts.facts, "num_workers")
    its = "" if loader is None else f" of {_loader_words(view, loader)}"
    have = "" if workers is None else f" ({counted(workers, 'worker') if workers else 'num_workers=0'})"
    yield Finding(
        EVALUATION_WAITS,
        us / whole,
        f"Evaluation takes {percent(share)} of the time, {percent(us / spent)} of which it waits for data.",
        f"{counted(len(spans), 'evaluation')}, {duration(spent / len(spans))} each, no part of a "
        f"{view.training.unit}; batches{its}{have}",
        "Look at the loader that evaluates: its workers, and whether they persist between evaluations.",
    )


def _loader_words(view: TrainerView, number: int) -> str:
    """Return text such as `the loader at train.py:31 (Unlabelled)`."""
    loader = view.loader(number)
    facts = {} if loader is None else loader.facts
    dataset = str(facts.get("dataset", "")).rpartition(".")[2]
    if facts.get("made"):
        return f"the loader at {place_words('{}:{}'.format(facts['made'], dataset))}"
    return f"the loader of {dataset}" if dataset else f"loader {number}"


EVALUATIONS = Cause(
    findings={EVALUATION_WAITS: "Evaluations take 1 % of the time or more."},
    find=of_steps(evaluation_findings),
    order=APART,
    explains=(EVALUATION_WAITS,),
)


_UNSURE = "How much of a copy runs alongside the step was not measured: the prediction assumes all to none."
COPY_LEFT = Factor(0.0, 0.5, 1.0, False, _UNSURE)


def pin_memory(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to pin batches in a thread of the trainer."""
    if case.facts.get("pin_memory") is True or not _copies_much(case):
        return None
    copy_us = _copy_us(case)
    return kind.leaving(
        case,
        COPY_LEFT,
        lambda left: (
            lambda setup: replace(setup, pinned=True, off_step_us=max(setup.off_step_us, (1 - left) * copy_us))
        ),
        why=f"Copies to the GPU come from memory that is not pinned and take {_copies(case)}.",
        costs=_pinned_bytes(case),
        arguments={"pin_memory": True},
    )


def device_prefetch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to copy batches to the device before the step requests them."""
    if not _copies_much(case):
        return None
    ahead = [] if case.batch_bytes is None else [f"{size(2 * case.batch_bytes)} of GPU memory for two batches ahead"]
    return kind.tried(
        case,
        lambda setup: replace(setup, off_step_us=max(setup.off_step_us, _copy_us(case))),
        why=f"Copies to the GPU take {_copies(case)}, and the step stands still meanwhile.",
        confidence=MEDIUM,
        costs=[*_pinned_bytes(case), *ahead],
        injects=True,
    )


def _copies_much(case: Case) -> bool:
    return uses_gpu(case.session, case.view.trainer) and case.step_share(case.part_us(COPY)) >= WORTH


def _copy_us(case: Case) -> float:
    """Return the training thread's time to copy one batch."""
    return case.part_us(COPY) / max(case.batches_a_step, 1.0)


def _copies(case: Case) -> str:
    us = case.part_us(COPY)
    return f"{duration(us)} ({percent(case.step_share(us))}) of a step"


def _pinned_bytes(case: Case) -> list[str]:
    queued = 1 if case.recorded is None else case.workers * case.recorded.setup.prefetch
    return [] if case.batch_bytes is None else [f"{size(case.batch_bytes * max(queued, 1))} of pinned memory at most"]


COPIES = Cause(
    remedies=[
        RemedyKind(
            "pin-memory",
            "batches pinned by a thread",
            SETTING,
            pin_memory,
            hint="DataLoader(…, pin_memory=True), and batch.to(device, non_blocking=True)",
            key="loaders",
            value='`{"0": {"pin_memory": true}}`',
        ),
        RemedyKind(
            "device-prefetch",
            "the next batch copied to the device on a side stream",
            ONE_LINE,
            device_prefetch,
            hint='for batch in headrace.DevicePrefetcher(loader, "cuda"): …; with normalize=headrace.IMAGENET images '
            "travel as bytes and become floats on the device",
            key="device_prefetch",
            value="`true`",
        ),
    ]
)
