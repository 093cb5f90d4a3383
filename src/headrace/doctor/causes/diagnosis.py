"""Diagnosis of a session: the findings of all causes, heaviest first."""

from __future__ import annotations

from headrace.doctor.causes.cause import APART, LEADS, MACHINE, Run, all_causes
from headrace.doctor.causes.verdict import ending, statements, verdict
from headrace.doctor.measure import (
    BOUND,
    Diagnosis,
    Finding,
    Join,
    TrainerView,
    cost,
    main_view,
    rank_views,
    ranks_together,
)
from headrace.doctor.session.model import Session


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
        statements=list(statements(session, main, by_rank, found)),
    )


def findings(run: Run) -> list[Finding]:
    """Return all findings by weight; among equals, what leads comes first."""
    is_measured = run.view is not None and run.view.budget is not None
    causes = [one for one in all_causes() if is_measured or one.order != MACHINE]
    found = [(cause.order, one) for cause in causes if cause.find is not None for one in cause.find(run)]
    is_bound = run.view is not None and (run.view.data_share or 0.0) >= BOUND
    most = max((one.weight for order, one in found if order == LEADS), default=1.0) if is_bound else 1.0

    def place(order: str, finding: Finding) -> tuple[float, bool, float]:
        weight = finding.weight if order in (LEADS, APART) else min(finding.weight, most)
        return -weight, order != LEADS, -finding.weight

    return [one for _, one in sorted(found, key=lambda each: place(*each))]
