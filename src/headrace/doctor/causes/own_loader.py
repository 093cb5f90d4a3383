"""Headrace's own loaders: whether they keep up, and what limits them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.cause import Cause, of_steps
from headrace.doctor.measure import BOUND, Finding, TrainerView, last_feeds, own_name
from headrace.doctor.quantities import counted, duration, percent
from headrace.doctor.session.model import Session

KEEPS_UP = "loader-keeps-up"
ADVICE = {
    "store": 'Look at order="windowed", which reads neighbours in one request, and at cache="disk:/PATH:SIZE".',
    "text": "Look at a pack of tokens, or at cache=: the same text is tokenised in every epoch.",
    "map": "Look at map_workers=, or at augmentations that the core does itself.",
    "python": "Look at map_workers= for what map= and batch_map= do in Python, and at what else holds the GIL.",
    "read": "Look at cache=, or at where the files lie: headrace stage copies them to a faster disk.",
    "probe": "Look at headrace pack: the sizes of images are then known without opening each.",
}
"""Advice by the limit of a Headrace loader, as `stats().limit` names it."""
OF_CORES = "Look at threads=, a smaller size of the files, cache=, or headrace pack."


def own_loader_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield for each loader that it keeps up, or what limits it."""
    share, feeds = view.wait_share or 0.0, last_feeds(view.training)
    for making in view.awaited_production:
        if not making.threads:
            continue
        name = own_name(next(one for one in view.trainer.loaders if one.number == making.loader))
        busy = f"its {counted(making.workers, 'thread')} work {percent(making.busy)} of the time"
        took = f"{duration(making.batch_us)} of its threads' time a batch, {making.cores:.1f} cores used"
        limit = feeds.get(making.loader, {}).get("limit", "")
        if share < BOUND:
            yield Finding(KEEPS_UP, 0.0, f"{name} keeps up: {busy}.", took, "Leave it as it is.")
        else:
            advice = ADVICE.get(limit, OF_CORES)
            text = f"{name} is limited by {limit}, and {busy}." if limit else f"{name} does not keep up: {busy}."
            yield Finding("loader-limit", share, f"{text} {advice}", took, advice)


CAUSE = Cause(
    findings={
        KEEPS_UP: "A loader of Headrace's own keeps up.",
        "loader-limit": "A loader of Headrace's own does not keep up; what limits it is named.",
    },
    find=of_steps(own_loader_findings),
    explains=("loader-limit",),
)
