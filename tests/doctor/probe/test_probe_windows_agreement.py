"""Decisions of several ranks, each of them a thread here, over a store of torch.distributed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from headrace.doctor.probe.training.state import RankAgreement

COUNT = 3


@pytest.fixture(params=["hash", "file"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Gives a rank its store."""
    if request.param == "file":
        return lambda: dist.FileStore(str(tmp_path / "store"), COUNT)
    one = dist.HashStore()
    one.set_timeout(timedelta(seconds=20))
    return lambda: one


def _agree(stores: Callable[[], Any], votes: dict[int, Any], deadline_s: float = 20.0) -> list[Any]:
    with ThreadPoolExecutor(COUNT) as pool:
        decisions = [
            pool.submit(RankAgreement(stores(), rank, COUNT).agree, "steps", vote, max, deadline_s)
            for rank, vote in votes.items()
        ]
        return [decision.result(timeout=30) for decision in decisions]


def test_all_get_what_was_made_of_all_votes(stores: Callable[[], Any]) -> None:
    assert _agree(stores, {0: 3, 1: 11, 2: 7}) == [11, 11, 11]


def test_one_that_does_not_come_leaves_no_decision(stores: Callable[[], Any]) -> None:
    assert _agree(stores, {0: 3, 2: 7}, deadline_s=0.2) == [None, None]


def test_one_that_comes_too_late_gets_what_the_others_got(stores: Callable[[], Any]) -> None:
    _agree(stores, {0: 3, 2: 7}, deadline_s=0.1)
    assert _agree(stores, {1: 11}) == [None]


def test_a_rank_alone_decides_by_itself() -> None:
    assert RankAgreement(None, 0, 1).agree("steps", 5, max) == 5
