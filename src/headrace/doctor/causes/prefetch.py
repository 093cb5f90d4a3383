"""Late batches: main causes of the wait, batches that arrive out of order, and a longer prefetch queue."""

from __future__ import annotations

from collections.abc import Iterator

from ..measure import HELD_UP, MADE_HERE, WAIT_ORDER, Finding, TrainerView
from ..quantities import counted, duration, percent, size
from .case import MEDIUM, WORTH_SAYING, Case, setting
from .library_loaders import source_advice
from .proposals import Proposal, RemedyKind
from .stage_names import by_category, named
from .training_kinds import TRAINING

EVEN = 0.01
"""Share of a step within which a shorter queue counts as equally good."""
TIMES = (2, 4, 8)
"""Queue lengths to try, as multiples of the current one."""
OF_WAIT = {HELD_UP: "out-of-order", MADE_HERE: "no-workers"}
"""Finding codes for parts of the wait that no stage explains."""


def wait_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield causes of the loop's wait. The weight is the wait's share of a step times the cause's share of the wait.

    Times are those of the CPU. A GPU that is still behind does not wait for all of them.
    """
    share = view.wait_share or 0.0
    each = f"of each {view.training.unit}{' as the CPU sees it' if view.has_gpu else ''}"
    for cause in by_category(view.causes):
        if cause.share * share < WORTH_SAYING:
            continue
        head = cause.name.partition(":")[0]
        is_stage = head not in WAIT_ORDER
        by = ", by the stages of the batches that were waited for" if is_stage else ""
        yield Finding(
            code=f"stage-{head}" if is_stage else head.replace(" ", "-"),
            weight=cause.share * share,
            text=f"{percent(cause.share)} of the wait for data is {named(cause.name)}.",
            evidence=f"{duration(cause.us)} {each}{by}",
            advice=source_advice(view, cause.name),
        )
    for part in view.split.parts if view.split is not None else []:
        if part.share * share >= WORTH_SAYING and part.name in OF_WAIT:
            yield TRAINING[OF_WAIT[part.name]].found(part.share * share, share=part.share, us=part.us, each=each)


def prefetch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose a longer queue of batches ahead of the training thread."""
    if not case.workers:
        return None
    now = max(1, case.recorded.setup.prefetch if case.recorded is not None else 1)
    free = case.free_shared_bytes
    known = [] if case.batch_bytes is None else [case.batch_bytes * case.workers * now]
    """Bytes that doubling the current queue adds, if known."""
    fitting = [times for times in TIMES if free is None or all(one * (times - 1) <= free for one in known)]
    tries = {now * times: one for times in fitting if (one := case.predict(setting(prefetch=now * times))) is not None}
    if not tries:
        why = "It cannot be computed: no production of a batch was recorded."
        if not fitting:
            why = f"Twice as many batches need {size(known[0])} more of /dev/shm, and {size(free)} are free."
        return kind.would_not(why)
    best = min(one.step_us for one in tries.values())
    factor = min(factor for factor, one in tries.items() if one.step_us <= (1 + EVEN) * best)
    if not case.is_faster(tries[factor]):
        takes = f"a step takes {duration(tries[factor].step_us)}, and {duration(case.step_us)} now"
        ahead = f"With {factor} batches ahead for each of {counted(case.workers, 'worker')}"
        return kind.would_not(f"{ahead} {takes}: a longer queue makes no batch faster.")
    return kind.titled(f"{factor} batches ahead for each worker in place of {now}").tried(
        case,
        setting(prefetch=factor),
        why=f"Single slow batches hold up the others: {counted(case.workers * now, 'batch')} ahead do not bridge them.",
        confidence=MEDIUM,
        prediction=tries[factor],
        costs=[f"{size(one * (factor / now - 1))} of shared memory for the batches that wait" for one in known],
        arguments={"prefetch_factor": factor},
    )
