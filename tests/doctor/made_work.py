"""Work for the simulation, of which all is known. Times are in any one unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.doctor.causes import diagnose
from headrace.doctor.measure import RankView, main_view_of
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import RecordedRun, recorded
from headrace.doctor.simulate.pipeline import simulated
from headrace.doctor.simulate.work import BatchWork, FeedSetup, PassCosts, SimulatedWork, StepWork

NO_COSTS = PassCosts(0, 0, 0, 0, 0, 0, False)


def recording_of(session: Session, ranks: Sequence[RankView] | None = None) -> RecordedRun | None:
    """What is recorded of the trainer that waits the longest, one of these ranks."""
    view = main_view_of(session)
    return None if view is None else recorded(session, view, diagnose(session).ranks if ranks is None else ranks)


def recorded_in(session: Session, ranks: Sequence[RankView] | None = None) -> RecordedRun:
    """The same of a session that has a recording."""
    found = recording_of(session, ranks)
    assert found is not None
    return found


def setup(**changes: Any) -> FeedSetup:
    usual: dict[str, Any] = {"workers": 2, "prefetch": 2, "persistent": False, "pinned": False, "in_order": True}
    usual |= {"cores": None, "others": 0.0, "worker_threads": 1.0, "pass_batches": None}
    return FeedSetup(**(usual | changes))


def batch(
    compute: float = 0, *, wait: float = 0, serialise: float = 0, receive: float = 0, held: float = 0, pin: float = 0
) -> BatchWork:
    return BatchWork(wait, compute, serialise, receive, held, pin)


def step(compute: float = 0, *, wait: float = 0, gets: int = 1, device: float = 0) -> StepWork:
    return StepWork(gets, compute, wait, device)


def step_ends(setup: FeedSetup, work: SimulatedWork, *, first: int = 0, steps: int) -> list[float]:
    """When each simulated step ends."""
    return simulated(setup, work, first=first, steps=steps).ends


def work(
    batches: Sequence[BatchWork],
    steps: Sequence[StepWork],
    *,
    passes: PassCosts = NO_COSTS,
    draw: float = 0,
    team: int = 1,
) -> SimulatedWork:
    return SimulatedWork(batches, steps, passes, draw, team)
