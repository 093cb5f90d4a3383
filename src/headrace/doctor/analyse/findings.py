"""Everything worth knowing about a session, heaviest first."""

from __future__ import annotations

from collections.abc import Sequence

from ..session.model import Session
from . import environment
from .diagnosis import Finding, RankView
from .find_loaders import loader_findings
from .find_processes import process_findings
from .find_ranks import rank_findings
from .find_waits import wait_findings
from .together import Together
from .view import View, main_view


def findings(
    session: Session, views: Sequence[View], ranks: Together | None, by_rank: Sequence[RankView]
) -> list[Finding]:
    """Those of equal weight stay in the order: waits, loaders, ranks, processes, machines."""
    main = main_view(views)
    found = [
        *([] if main is None else wait_findings(main)),
        *([] if main is None else loader_findings(session, main)),
        *([] if ranks is None else rank_findings(ranks, by_rank)),
        *process_findings(session),
        *environment.findings(session),
    ]
    return sorted(found, key=lambda finding: -finding.weight)
