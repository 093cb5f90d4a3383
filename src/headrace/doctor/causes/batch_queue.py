"""Single slow batches that hold up those made after them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.cause import LEADS, Cause, of_steps
from headrace.doctor.causes.stages import each_words, part_of_wait
from headrace.doctor.measure import HELD_UP, Finding, TrainerView
from headrace.doctor.quantities import duration, percent
from headrace.doctor.session.model import Session

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


CAUSE = Cause(
    findings={OUT_OF_ORDER: "A later batch is ready while the next in order is not."},
    find=of_steps(order_findings),
    order=LEADS,
    explains=(OUT_OF_ORDER,),
)
