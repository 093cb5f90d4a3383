"""From a session to what it means."""

from __future__ import annotations

from ..session.model import Session
from .cost import cost
from .diagnosis import Diagnosis
from .findings import findings
from .join import Join
from .ranks import rank_views
from .together import together
from .verdict import verdict
from .view import View, main_view


def diagnose(session: Session) -> Diagnosis:
    """Pure: the same session gives the same diagnosis."""
    join = Join(session)
    views = [View.of(session, trainer, join) for trainer in session.trainers]
    main = main_view(views)
    ranks = together(views)
    by_rank = rank_views(ranks)
    found = findings(session, views, ranks, by_rank)
    return Diagnosis(
        verdict=verdict(session, main, by_rank, found),
        wait_share=None if main is None else main.wait_share,
        seen_by="gpu" if main is not None and main.has_gpu else "cpu",
        budgets=[view.budget for view in views if view.budget is not None],
        waits=[view.split for view in views if view.split is not None],
        causes=[view.causes for view in views if view.causes.parts],
        makings=[making for view in views for making in view.makings],
        ranks=by_rank,
        findings=found,
        cost=cost(session, views, join),
    )
