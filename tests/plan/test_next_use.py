"""What a node reads next, and what its full cache drops, against lists of all that it reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.plan import NextUses, NodeRanks, UniformPlan, WindowShape, can_plan_uses, choose_eviction
from headrace.plan.next_use import NEVER

WINDOWED = WindowShape(block=4, blocks=8, lanes=4)


def plan_of(*, length=203, batch_size=3, world_size=4, window=None, remainder="short"):
    return UniformPlan(
        length=length, batch_size=batch_size, world_size=world_size, window=window, remainder=remainder, seed=5
    )


def all_uses(plan, node, epochs):
    """(absolute step, sample) of all that the ranks of a node read, by the batches themselves."""
    ranks = [replace(plan, rank=rank) for rank in range(node.first, node.stop)]
    return [
        (epoch * plan.steps + step, sample)
        for epoch in range(epochs)
        for step in range(plan.steps)
        for rank in ranks
        for sample in rank.batch(epoch, step).samples.tolist()
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("window", [None, WINDOWED], ids=["global", "windowed"])
@pytest.mark.parametrize("remainder", ["short", "drop", "wrap"])
@pytest.mark.parametrize(("first", "stop"), [(0, 2), (2, 4), (3, 4)])
def test_the_next_use_is_that_of_the_batches(window, remainder, first, stop):
    plan, node = plan_of(window=window, remainder=remainder), NodeRanks(first, stop)
    uses = all_uses(plan, node, 1 + 3 + 2 * node.nodes(4))
    ahead = 2 * node.nodes(4)
    asked = NextUses(plan, node, base_ids=None, count=plan.length)
    for epoch, step in [(0, 0), (0, 7), (1, plan.steps - 1), (3, 2), (2, 4)]:
        now, last = epoch * plan.steps + step, (epoch + ahead + 1) * plan.steps
        soon = [(at, sample) for at, sample in uses if now < at < last]
        expected = [min((at for at, sample in soon if sample == each), default=NEVER) for each in range(0, 203, 9)]
        got = asked.of(np.arange(plan.length), epoch, step)
        assert got[::9].tolist() == expected
        some = np.array([5, 100, 202, 5])
        assert asked.of(some, epoch, step).tolist() == got[some].tolist()


def test_samples_are_told_by_base_id():
    """Of a selection, and of one that has a sample twice, which is read at the earlier of its two places."""
    plan, node = plan_of(length=50), NodeRanks(0, 2)
    base_ids = np.arange(50, dtype=np.int64)[::-1] * 2
    base_ids[0] = base_ids[1]
    plain = NextUses(plan, node, base_ids=None, count=50).of(np.arange(50), 1, 2)
    got = NextUses(plan, node, base_ids=base_ids, count=100).of(np.arange(100), 1, 2)
    assert got[base_ids[2:]].tolist() == plain[2:].tolist()
    assert got[base_ids[1]] == min(plain[0], plain[1])
    assert (got[1::2] == NEVER).all()


def test_what_is_read_last_is_dropped():
    kept, taken = np.array([0, 12, 13, 14]), np.array([10, 10, 10, 10], np.uint32)
    next_use = np.array([4, 7, 5, NEVER], np.int64)
    assert choose_eviction(kept, taken, next_use, free_bytes=1).samples.tolist() == [14]
    two = choose_eviction(kept, taken, next_use, free_bytes=11)
    assert (two.samples.tolist(), two.keep_before) == ([14, 12], 7)
    everything = choose_eviction(kept, taken, next_use, free_bytes=99)
    assert (everything.samples.tolist(), everything.keep_before) == ([14, 12, 13, 0], 4)
    nothing = choose_eviction(kept, taken, next_use, free_bytes=0)
    assert (nothing.samples.tolist(), nothing.keep_before) == ([], NEVER)
    assert choose_eviction(kept[:0], taken[:0], next_use[:0], free_bytes=5).keep_before == NEVER


def test_orders_whose_uses_are_known():
    assert can_plan_uses(plan_of())
    assert not can_plan_uses(replace(plan_of(), shuffle=False))
    assert (NodeRanks(0, 8).nodes(8), NodeRanks(8, 16).nodes(32), NodeRanks(0, 3).nodes(8)) == (1, 4, 3)
