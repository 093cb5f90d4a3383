"""From a session to what it means."""

from __future__ import annotations

from headrace.doctor.analyse.cost import cost
from headrace.doctor.analyse.join import Join
from headrace.doctor.analyse.ranks import rank_views
from headrace.doctor.analyse.together import together
from headrace.doctor.causes.diagnose import findings
from headrace.doctor.causes.verdict import verdict
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.measure.view import View, main_view
from headrace.doctor.session.model import Session


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
