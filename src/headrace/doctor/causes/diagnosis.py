"""Diagnosis of a session: the verdict, the facts behind it, the command's end, and the findings of all causes."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

from headrace.doctor.causes.cause import APART, LEADS, MACHINE, Run, all_causes
from headrace.doctor.causes.cores import TAKEN
from headrace.doctor.causes.loop_work import BEFORE_MODEL, LOOP_WORK, SLOW_START
from headrace.doctor.causes.memory import COPY_ON_WRITE
from headrace.doctor.causes.processes import EXCEPTION, SHARED_HANDLE, failed_process, gone_first, lost_peer
from headrace.doctor.causes.remedy import control_means_us
from headrace.doctor.causes.stages import COSTLY_LINE, OUT_OF_ORDER, by_category, category, named
from headrace.doctor.causes.stalled import ENDINGS
from headrace.doctor.causes.uneven_ranks import DEVICE_PARTS, LATE_RANK, RANKS_APART, SHAPES
from headrace.doctor.causes.workers import FEW_WORKERS
from headrace.doctor.measure import (
    BOUND,
    DATA_WORK,
    OBSERVE,
    Diagnosis,
    Finding,
    Join,
    Statement,
    TrainerView,
    cost,
    host_of,
    main_view,
    rank_views,
    ranks_together,
    window,
)
from headrace.doctor.quantities import counted, duration, percent, times
from headrace.doctor.session.model import Session

WORTH_NAMING = 0.1
"""Minimum share of the wait for a second cause to be named."""
LINE = 0.15
"""Minimum share of a step of a costly line for the verdict to name it."""
DIFFER = 1.15
"""Reporting threshold: ratio of the mean steps of runs of the same command."""
MOST_CHARACTERS = 300
"""Maximum length of the command's last line."""
MOST_WORDS, OF_SPEED = 25, 6
"""Maximum words in the opening sentence, and the words reserved for the possible speed of a step."""


def verdict(session: Session, view: TrainerView | None) -> Statement:
    """Return the opening sentence of a report: the step time, the share that waits, and the main cause."""
    if view is None:
        return _untrained(session)
    unit, budget = view.training.unit, view.budget
    if budget is None:
        text = "No step was completed and no batch was received, so there is nothing to say about its data."
        return Statement("no-steps", text)
    batches = round(budget.micro_batches) if unit == "step" else 1
    takes = f"A {unit}{f' of {batches} batches' if batches > 1 else ''} takes {duration(budget.mean_us)}"
    if view.wait_share is None:
        unseen = "no DataLoader was iterated and no other source of batches was found"
        if view.trainer.passes:
            unseen = "a DataLoader was iterated, but the training thread received none of its batches"
        return Statement("no-batches", f"{takes}; {unseen} in {counted(budget.steps, budget.unit)}.")
    waiter = ("the GPU" if view.has_gpu else "") if view.only else f"rank {view.trainer.rank}"
    waits = f"{takes}{f'; {waiter}' if waiter else ' and'} waits {percent(view.wait_share)} of it for data"
    if view.share(DATA_WORK) >= max(view.wait_share, BOUND):
        return Statement(LOOP_WORK, f"{waits}; data work in the loop is {percent(view.share(DATA_WORK))}.")
    if view.wait_share < BOUND:
        return Statement("not-input-bound", f"Not input-bound: {waits[0].lower()}{waits[1:]}.")
    first = next(iter(by_category(view.causes)), None)
    if first is None:
        return Statement("input-bound", f"{waits}.")
    name, most = named(first.name), "mostly" if first.share >= 1 / 2 else "above all"
    forms = (f"{waits}, {most} {one}." for one in (name, name.partition(" (")[0]))
    short = (one for one in forms if len(one.split()) <= MOST_WORDS - OF_SPEED)
    return Statement("input-bound", next(short, f"{waits}."))


def statements(session: Session, view: TrainerView | None, findings: Sequence[Finding]) -> Iterator[Statement]:
    """Yield the facts behind the verdict, most significant first. `findings` must be sorted, heaviest first."""
    yield from (Statement(fault.code, fault.evidence) for fault in session.faults)
    if view is not None and view.budget is not None:
        yield from _waiting(view, findings)
    yield from _found([one for one in findings if one.code == LATE_RANK])  # all other ranks wait for it
    # The heaviest finding that no stage or part of a step covers. Out-of-order batches come last, since any disturbance
    # of the workers causes them.
    explaining = {code for cause in all_causes() for code in cause.explains}
    heavy = [finding for finding in findings if finding.code in explaining and finding.weight >= BOUND]
    lost = [finding for finding in heavy if finding.code in (DEVICE_PARTS, SHAPES)]  # besides waiting
    heaviest = sorted(heavy, key=lambda finding: finding.code == OUT_OF_ORDER)[:1]
    yield from dict.fromkeys(_found([*heaviest, *lost[:1]]))
    yield from _found([one for one in findings if one.code == COSTLY_LINE and one.weight >= LINE][:1])
    # A library newer than the probe: no figure shows what is missing.
    unknown = (note for note in session.notes if note.code == "not-known")
    yield from dict.fromkeys(Statement(note.code, note.text) for note in unknown)
    yield from _found([one for one in findings if one.code in (SHARED_HANDLE, SLOW_START, COPY_ON_WRITE, RANKS_APART)])
    if view is not None and view.budget is not None and view.wait_share is not None:
        yield from _noise(session, view, view.budget.mean_us)
        yield from _measured(session, view)


def _found(findings: Sequence[Finding]) -> Iterator[Statement]:
    yield from (Statement(finding.code, finding.text) for finding in findings)


def ending(session: Session, view: TrainerView | None, findings: Sequence[Finding]) -> Iterator[Statement]:
    """Yield how the command ended; nothing after a successful run."""
    outcome = session.outcome
    ends = [one for one in findings if one.code in ENDINGS]
    told = [Statement(one.code, text) for one in ends for text in (one.text, f"{one.evidence}.")]
    yield from told
    steps = 0 if view is None else view.training.seen
    after = f" after {counted(steps, view.training.unit)}" if view is not None and steps else ""
    if outcome.why == "not found":
        command = outcome.command[0] if outcome.command else "nothing"
        yield Statement("not-found", f"The command could not be started: {command} was not found.")
    elif outcome.why == "interrupted":
        yield Statement("interrupted", f"The run was interrupted{after}.")
    elif outcome.status and outcome.why not in ("steps", "stalled"):
        failed, last = f"The command failed with {status_words(outcome.status)}{after}", _last_line(session)
        last = "" if any(last in one.text for one in told) else last
        whole = f"{failed}: {last}{'' if last.endswith(('.', '!', '?')) else '.'}"
        texts = [whole] if last and len(whole.split()) <= MOST_WORDS else filter(None, (f"{failed}.", last))
        yield from (Statement("failed", text) for text in texts)


def status_words(status: int) -> str:
    """Describe an exit status as a shell does: 128 + n for signal n."""
    try:
        return f"exit status {status} ({signal.Signals(status - 128).name})"
    except ValueError:
        return f"exit status {status}"


def _last_line(session: Session) -> str:
    """Return the cause of the command's end: an exception in the script, or else the last line of output."""
    failed = failed_process(session)
    if failed is not None and lost_peer(failed) and (gone := gone_first(session)):
        return gone
    lines = session.outcome.last_lines if failed is None else (failed.error or "").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    raised = [line for line in lines if EXCEPTION.match(line)]
    return (raised or said or [""])[-1][:MOST_CHARACTERS]


def _waiting(view: TrainerView, findings: Sequence[Finding]) -> Iterator[Statement]:
    """Yield the causes of the wait and the data work in the loop; without a known wait, the largest other part."""
    budget = view.budget
    assert budget is not None
    if view.wait_share is not None:
        causes = cause_words(view) if view.wait_share >= BOUND else ""
        yield from [Statement("causes", causes)] if causes else []
        yield from _found([one for one in findings if one.code == LOOP_WORK and one.weight >= BOUND])
        return
    yield Statement("unseen-wait", "A wait for batches, if there was any, is in what is called not seen, or in other.")
    before = [one for one in findings if one.code == BEFORE_MODEL]
    heaviest = max((part for part in budget.device or budget.parts), key=lambda part: part.share, default=None)
    if before:
        yield from _found(before)
    elif heaviest is not None:
        text = f"The largest part of a {view.training.unit} is {heaviest.name} ({percent(heaviest.share)})."
        yield Statement("largest-part", text)


def _measured(session: Session, view: TrainerView) -> Iterator[Statement]:
    """Yield a statement if the run ended before the requested number of steps, which makes figures less reliable."""
    measured, unit = len(view.training.steps), view.training.unit
    is_enough = window(view.trainer, OBSERVE) is not None or any(note.code == "enough" for note in session.notes)
    if session.mode == "measure" and measured < session.steps and not is_enough:
        text = f"Measured over {counted(measured, unit)} of the {session.steps} asked for: the run ended first."
        yield Statement("few-steps", text)


def _noise(session: Session, view: TrainerView, step_us: float) -> Iterator[Statement]:
    """Yield the noise: other programs that alone change a step, and the spread of unchanged runs."""
    noise, host = [], host_of(session, view.trainer)
    others = None if host is None else host.mean("cpu_cores_other")
    if host is not None and host.cores is not None and others is not None and others >= TAKEN * host.cores:
        noise.append(f"other programs used {percent(min(others / host.cores, 1.0))} of the machine")
    means = [step_us, *control_means_us(session.controls)]
    if max(means) >= DIFFER * min(means):
        noise.append(f"runs without changes differ by {times(max(means) / min(means))}")
    if noise:
        yield Statement("noise", f"Figures are noisy: {'; '.join(noise)}.")


def _untrained(session: Session) -> Statement:
    if session.outcome.why == "not found":
        return Statement("not-run", "Nothing was run.")
    seen = (
        "no Python process that could be observed imported torch (python -I or -E, a PYTHONPATH of its own or a "
        "container hides one)"
    )
    if any("torch" in process.facts for process in session.processes):
        seen = "torch was imported, but no DataLoader was iterated and no optimizer stepped"
    return Statement("no-training", f"No training was seen: {seen}.")


def cause_words(view: TrainerView) -> str:
    """Return a sentence such as `58 % of the wait is archive lookup (tarfile) in 2 workers, 21 % decode (PIL)`."""
    parts = by_category(view.causes)
    if not parts:
        return ""
    first, *others = parts
    rest = [f"{percent(part.share)} {named(part.name)}" for part in others[:2] if part.share >= WORTH_NAMING]
    said = [f"{percent(first.share)} of the wait is {named(first.name)}{_where(view, first.name)}", *rest]
    return f"{', '.join(said)}."


def _where(view: TrainerView, cause: str) -> str:
    """Return where a stage runs. The name of a part of the wait already includes its place."""
    is_stage = ":" in cause or any(category(part.name) == cause and ":" in part.name for part in view.causes.parts)
    if not is_stage:
        return ""
    first = next(iter(view.batch_production), None)
    if first is not None and first.workers:
        return f" in {counted(first.workers, 'worker')}"
    return " in the training process, which has no workers"


def diagnose(session: Session) -> Diagnosis:
    """Return the whole diagnosis. The function is pure: the same session gives the same diagnosis."""
    join = Join(session)
    views = [TrainerView.of(session, trainer, join) for trainer in session.trainers]
    main, ranks = main_view(views), ranks_together(views)
    by_rank = rank_views(ranks)
    run = Run(session, main, ranks, by_rank)
    found = findings(run)
    return Diagnosis(
        verdict=verdict(session, main),
        wait_share=None if main is None else main.wait_share,
        seen_by="gpu" if main is not None and main.has_gpu else "cpu",
        budgets=[view.budget for view in views if view.budget is not None],
        waits=[view.split for view in views if view.split is not None],
        causes=[view.causes for view in views if view.causes.parts],
        batch_production=[making for view in views for making in view.batch_production],
        ranks=by_rank,
        findings=found,
        cost=cost(session, views),
        data_share=None if main is None else main.data_share,
        ending=list(ending(session, main, found)),
        statements=list(statements(session, main, found)),
    )


def findings(run: Run) -> list[Finding]:
    """Return all findings by weight; among equals, what leads comes first.

    Too few workers come last, since more workers hide whatever makes batches slow: reads from disk weigh as much as the
    stage that reads, and are its cause.
    """
    is_measured = run.view is not None and run.view.budget is not None
    causes = [one for one in all_causes() if is_measured or one.order != MACHINE]
    found = [(cause.order, one) for cause in causes if cause.find is not None for one in cause.find(run)]
    is_bound = run.view is not None and (run.view.data_share or 0.0) >= BOUND
    most = max((one.weight for order, one in found if order == LEADS), default=1.0) if is_bound else 1.0

    def place(order: str, finding: Finding) -> tuple[float, bool, bool, float]:
        weight = finding.weight if order in (LEADS, APART) else min(finding.weight, most)
        return -weight, order != LEADS, finding.code == FEW_WORKERS, -finding.weight

    return [one for _, one in sorted(found, key=lambda each: place(*each))]
