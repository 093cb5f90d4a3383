"""Two gloo ranks by torchrun, one 30 ms a step slower in decode: who is late, why, and who waits."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.alone

LEAST_US = 0.75 * 30_000
"""Rank 1 sleeps 30 ms a step longer, and longer still on a busy machine: what it took is held against what it took."""


@pytest.fixture
def ranks(two_ranks):
    return two_ranks.observed


def test_the_late_rank_is_named_with_its_stage(ranks):
    assert ranks.status == 0, ranks.error
    early, late = sorted(ranks.diagnosis.ranks, key=lambda view: view.rank)
    assert late.late > 0.9 > 0.1 > early.late
    assert late.cause is not None
    assert late.cause.startswith("decode:")
    assert late.lateness_us is not None
    assert LEAST_US < late.lateness_us < 2 * _more_data_wait_us(ranks)


def test_the_other_rank_waits_for_a_peer_and_not_for_data(ranks):
    early, late = sorted(ranks.diagnosis.ranks, key=lambda view: view.rank)
    assert LEAST_US < early.peer_wait_us < 2 * _more_data_wait_us(ranks)
    assert late.peer_wait_us < early.peer_wait_us / 3
    assert _more_data_wait_us(ranks) > LEAST_US


def test_shapes_that_differ_across_ranks_are_found(ranks):
    findings = [finding for finding in ranks.diagnosis.findings if "shape" in finding.code]
    assert findings
    assert "[4,16,16]" in findings[0].text + findings[0].evidence
    assert "[4,24,24]" in findings[0].text + findings[0].evidence


def _more_data_wait_us(ranks) -> float:
    early, late = sorted(ranks.diagnosis.ranks, key=lambda view: view.rank)
    return late.data_wait_us - early.data_wait_us
