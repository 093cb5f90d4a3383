"""Single slow batches that hold up those made after them, and the queue that bridges them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.case import MEDIUM, Case
from headrace.doctor.causes.cause import LEADS, Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import SETTING
from headrace.doctor.causes.stage_names import each_words, part_of_wait
from headrace.doctor.measure import HELD_UP, Finding, TrainerView
from headrace.doctor.quantities import counted, duration, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import setting

LONGER = (2, 4, 8)
"""Queue lengths to try, as multiples of the current one."""
EVEN_QUEUE = 0.01
"""Share of a step within which a shorter queue counts as equally good."""
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


def prefetch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose a longer queue of batches ahead of the training thread."""
    if not case.workers or part_of_wait(case.view, HELD_UP) is None:
        return None
    now = max(1, case.recorded.setup.prefetch if case.recorded is not None else 1)
    free = case.free_shared_bytes
    known = [] if case.batch_bytes is None else [case.batch_bytes * case.workers * now]
    """Bytes that doubling the current queue adds, if known."""
    fitting = [times for times in LONGER if free is None or all(one * (times - 1) <= free for one in known)]
    tries = {now * times: one for times in fitting if (one := case.predict(setting(prefetch=now * times))) is not None}
    if not tries:
        return None
    best = min(one.step_us for one in tries.values())
    factor = min(factor for factor, one in tries.items() if one.step_us <= (1 + EVEN_QUEUE) * best)
    return kind.titled(f"{factor} batches ahead for each worker in place of {now}").tried(
        case,
        setting(prefetch=factor),
        why=f"Single slow batches hold up those made after them: {counted(now, 'batch')} ahead for each worker do not "
        "bridge them.",
        confidence=MEDIUM,
        prediction=tries[factor],
        costs=[f"{size(one * (factor / now - 1))} of shared memory for the batches that wait" for one in known],
        arguments={"prefetch_factor": factor},
    )


CAUSE = Cause(
    findings={OUT_OF_ORDER: "A later batch is ready while the next in order is not."},
    find=of_steps(order_findings),
    order=LEADS,
    explains=(OUT_OF_ORDER,),
    remedies=[
        RemedyKind(
            "prefetch",
            "a longer queue",
            "Let each worker make more batches ahead",
            SETTING,
            prefetch,
            key="loaders",
            value='`{"0": {"prefetch_factor": 8}}`',
            adds_hands=True,
        )
    ],
)
