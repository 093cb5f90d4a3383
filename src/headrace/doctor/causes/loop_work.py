"""The training loop itself: its work on batches, reads and prints; its first steps, loaders and evaluations."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from headrace.doctor.causes.case import MEDIUM, WORTH, WORTH_SAYING, Case, name_of
from headrace.doctor.causes.proposals import Proposal, RemedyKind
from headrace.doctor.causes.training_kinds import TRAINING
from headrace.doctor.measure import (
    BOUND,
    DATA_WORK,
    OBSERVE,
    UNSEEN,
    WAIT,
    Finding,
    MeasuredStep,
    MeasuredTraining,
    TrainerView,
    pass_of,
    step_parts,
    whole_fact,
    window,
)
from headrace.doctor.quantities import counted, duration, number, percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import FeedSetup, StageChange

MOST_LINES = 3
WORTH_A_LINE = 0.1
"""Minimum share of the samples for a line to be named."""
READS, PRINTS = "loop-reads", "loop-prints"
"""Codes of findings and of remedies."""
MOST_PLACES = 3
READ = "Tensor."
"""Prefix of calls that read a tensor; `Tensor.__repr__()` counts as printing."""
TEXT = "Tensor.__repr__()"
HINT = {
    READS: "add up on the device (total += loss.detach()), and call .item() once in N steps; read a whole tensor with "
    "one .tolist() in place of a call for each number",
    PRINTS: "print and log once in N steps, without whole tensors; a progress bar has mininterval= for this",
}

LEAST_TREND = 32
"""Minimum number of steps that can show a trend."""
BLOCKS = 16
"""Number of blocks into which the measured steps are divided."""
SLOWER = 1.3
"""Ratio of a block's mean step to the mean of the second half, from which the block counts as slow."""


def loop_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield the training thread's work on batches, if it is worth naming."""
    share, unit = view.share(DATA_WORK), view.training.unit
    if share >= WORTH:
        evidence = _evidence(view, DATA_WORK)
        yield TRAINING["data-work"].found(share, share=share, unit=unit, line=at_line(view), evidence=evidence)
    share = view.share(UNSEEN)
    if share >= WORTH and view.trainer.lines:
        evidence = _evidence(view, UNSEEN)
        yield TRAINING["before-model"].found(share, share=share, unit=unit, line=at_line(view), evidence=evidence)


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
        why=f"Data work in the loop takes {duration(us)} of a step{at_line(case.view)}. Workers could do it while the "
        "model trains.",
        confidence=MEDIUM,
    )


def loop_verdict(view: TrainerView) -> str:
    """Return a sentence on the share of a step that is data work in the loop; empty if it is small."""
    share = view.share(DATA_WORK)
    if view.wait_share is None or share < BOUND:
        return ""
    more = "Another " if view.wait_share >= BOUND else ""
    return (
        f"{more}{percent(share)} of each {view.training.unit} is data work in the training loop itself{at_line(view)}."
    )


def at_line(view: TrainerView) -> str:
    """Return text such as `, most of it at train.py:31 (normalise)`; empty if no line was seen."""
    lines = [line for line in _lines(view) if line[1] >= WORTH_A_LINE]
    if not lines:
        return ""
    return f", {'most' if lines[0][1] >= 1 / 2 else percent(lines[0][1])} of it at {lines[0][0]}"


def _lines(view: TrainerView) -> list[tuple[str, float]]:
    whole = sum(line.us for line in view.trainer.lines)
    return [(place_words(line.place), line.us / whole) for line in view.trainer.lines[:MOST_LINES] if whole]


def place_words(place: str) -> str:
    """Format `/home/ada/train.py:31:normalise` as `train.py:31 (normalise)`."""
    name, line, qualified = place.rpartition("/")[2].rsplit(":", 2)
    function = ".".join(part for part in qualified.split(".") if not part.startswith("<"))
    return f"{name}:{line} ({function})" if function else f"{name}:{line}"


def _evidence(view: TrainerView, part: str) -> str:
    us = 0.0 if view.budget is None else next((one.us for one in view.budget.parts if one.name == part), 0.0)
    seen = [f"{percent(share)} at {place}" for place, share in _lines(view) if share >= WORTH_A_LINE]
    return "; ".join([f"{duration(us)} a {view.training.unit} on the training thread", *seen])


@dataclass(frozen=True)
class CallsFromPlace:
    """Calls of one kind from one line, per step."""

    what: str
    place: str | None
    waits: bool
    """True if the call waits for the device."""
    calls: float
    us: float

    @property
    def code(self) -> str:
        return READS if self.what.startswith(READ) and self.what != TEXT else PRINTS


def call_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the cost per step of reading tensors and of printing, if it is large."""
    for code in (READS, PRINTS):
        found = [one for one in loop_calls(session, view) if one.code == code]
        us = sum(one.us for one in found)
        share = _gain(view, found)
        if share < WORTH or view.budget is None:
            continue
        first, unit = found[0], view.training.unit
        takes = f"{percent(us / view.budget.mean_us)} of each {unit}"
        waits = any(one.waits for one in found)
        bound = (
            f" waits for the device; that costs up to {percent(share)} of each {unit}" if waits else f" takes {takes}"
        )
        most = "most of it by " if first.us >= us / 2 else f"{percent(first.us / us)} of it by "
        evidence = _calls_evidence(found, us, unit, waits)
        most += f"{first.what}{_at(first)}"
        yield TRAINING[code].found(share, bound=bound, most=most, evidence=evidence, hint=HINT[code])


def loop_calls(session: Session, view: TrainerView) -> list[CallsFromPlace]:
    """Return the calls of a mean step by callee and line, slowest first.

    The calls come from the watched steps within the observed window, or from all watched steps if there are none.
    """
    trainer, steps = view.trainer, view.training.steps
    processes = [one for one in session.processes if (one.host, one.pid) == (trainer.host, trainer.pid)]
    told = [one for process in processes for one in process.facts.get("calls", ())]
    observed = window(trainer, OBSERVE)
    since = steps[0].start if steps else 0
    until = max([*trainer.steps.end, 0]) if observed is None else observed.end
    within = [one for one in told if since < one["time"] and one["time"] <= until]
    chosen = within or told
    count = sum(one["steps"] for one in chosen)
    sums: dict[tuple[str, str | None, bool], tuple[int, int]] = {}
    for one in chosen:
        for what, place, waits, calls, us in one["calls"]:
            before = sums.get((what, place, bool(waits)), (0, 0))
            sums[what, place, bool(waits)] = before[0] + calls, before[1] + us
    found = [CallsFromPlace(*key, calls / count, us / count) for key, (calls, us) in sums.items() if count]
    return sorted(found, key=lambda one: -one.us)


def _gain(view: TrainerView, found: Sequence[CallsFromPlace]) -> float:
    """Return the maximum share of a step that is saved without these calls.

    While a call waits, the device does work that remains. A step is never shorter than that work, nor than the training
    thread's other work.
    """
    if view.budget is None or not view.budget.mean_us:
        return 0.0
    step_us, waiting = view.budget.mean_us, sum(one.us for one in found if one.waits)
    other = sum(one.us for one in found if not one.waits)
    return min(other + min(waiting, max(step_us - waiting, 0.0)), step_us) / step_us


def fewer(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to read tensors less often, if this takes long."""
    found = [one for one in loop_calls(case.session, case.view) if one.code == kind.code]
    share = _gain(case.view, found)
    if share < WORTH:
        return None
    own_us = case.step_us - case.part_us(WAIT)

    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, step=setup.step * max(1 - share * case.step_us / max(own_us, 1.0), 0.0))

    first, us = found[0], sum(one.us for one in found)
    return kind.tried(
        case,
        change,
        why=f"{number(round(first.calls, 1))} × {first.what} a step{_at(first)}: such calls take {duration(us)} of it.",
        confidence=MEDIUM,
    )


def _at(one: CallsFromPlace) -> str:
    return "" if one.place is None else f" at {place_words(one.place)}"


def _calls_evidence(found: Sequence[CallsFromPlace], us: float, unit: str, waits: bool) -> str:
    said = [f"{duration(us)} a {unit}{', most of it the device at work' if waits else ''}"]
    said += [
        f"{number(round(one.calls, 1))} × {one.what}{_at(one)}: {duration(one.us)}"
        for one in found[:MOST_PLACES]
        if one.us >= WORTH_A_LINE * us
    ]
    return "; ".join(said)


def epoch_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield differences between steps, between loaders, and between training and evaluation."""
    yield from _first_steps(view)
    yield from _slower_loader(view)
    yield from _evaluation(view)


def first_steps(training: MeasuredTraining) -> int:
    """Count the measured steps before the steady state; 0 without such a trend.

    These are the leading blocks of steps that are each slower than every block of the second half.
    """
    steps = training.steps
    if len(steps) < LEAST_TREND:
        return 0
    size = len(steps) // BLOCKS
    means = [_mean_us(steps[at : at + size]) for at in range(0, size * BLOCKS, size)]
    steady = means[BLOCKS // 2 :]
    bound = max(SLOWER * fmean(steady), max(steady))
    lead = next((at for at, us in enumerate(means) if us <= bound), BLOCKS)
    return lead * size if lead < BLOCKS else 0


def _first_steps(view: TrainerView) -> Iterator[Finding]:
    steps, count = view.training.steps, first_steps(view.training)
    if not count:
        return
    before, after = steps[:count], steps[count:]
    first_us, steady_us = _mean_us(before), _mean_us(after)
    share = 1 - steady_us / _mean_us(steps)
    if share < BOUND:
        return
    unit, reached = view.training.unit, steps[count].number
    waits = [_wait_share(view.training, some) for some in (before, after)]
    figures = {"times": first_us / steady_us, "before": first_us, "steady": steady_us, "reached": reached}
    shares = {"waited": waits[0], "waits": waits[1]}
    yield TRAINING["first-steps"].found(share, first=counted(reached, unit), unit=unit, **figures, **shares)


def _slower_loader(view: TrainerView) -> Iterator[Finding]:
    """Find the loader that the steps wait for most, out of several."""
    waited = view.waited_us
    whole, share = sum(waited.values()), view.wait_share or 0.0
    if len(waited) < 2 or not whole or share < BOUND:
        return
    slowest, *others = sorted(waited, key=lambda loader: -waited[loader])
    rest = ", ".join(f"{percent(waited[one] / whole)} for {_loader_words(view, one)}" for one in others)
    yield TRAINING["slower-loader"].found(
        share * waited[slowest] / whole,
        loaders=len(waited),
        slowest=_loader_words(view, slowest),
        share=waited[slowest] / whole,
        us=waited[slowest] / max(len(view.training.steps), 1),
        unit=view.training.unit,
        rest=rest,
    )


def _evaluation(view: TrainerView) -> Iterator[Finding]:
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
        *((one.start, one.ready - one.start, one.number) for one in view.trainer.passes),
        *(
            (one.last_start, one.last, one.number)
            for one in view.trainer.passes
            if one.last is not None and one.last_start is not None
        ),
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
    figures = {"share": share, "waits": us / spent, "spans": len(spans), "each": spent / len(spans)}
    yield TRAINING["evaluation"].found(us / whole, unit=view.training.unit, its=f"{its}{have}", **figures)


def _mean_us(steps: Sequence[MeasuredStep]) -> float:
    return fmean(step.duration for step in steps)


def _wait_share(training: MeasuredTraining, steps: Sequence[MeasuredStep]) -> float:
    waited = sum(step_parts(training, step).get(WAIT, 0.0) for step in steps)
    return waited / max(sum(step.duration for step in steps), 1)


def _loader_words(view: TrainerView, number: int) -> str:
    """Return text such as `the loader at train.py:31 (Unlabelled)`."""
    loader = view.loader(number)
    facts = {} if loader is None else loader.facts
    dataset = str(facts.get("dataset", "")).rpartition(".")[2]
    if not facts.get("file"):
        return f"the loader of {dataset}" if dataset else f"loader {number}"
    return f"the loader at {place_words('{}:{}:{}'.format(facts['file'], facts.get('line'), dataset))}"
