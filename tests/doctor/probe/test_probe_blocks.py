"""Which blocks of steps are kept where not all can be."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.doctor.probe.evidence_file import is_kept, left_out


@pytest.mark.parametrize("halvings", [0, 1, 2, 3, 6])
def test_one_of_each_group_is_kept(halvings: int) -> None:
    size = 2**halvings
    for group in range(100):
        assert sum(is_kept(group * size + place, halvings) for place in range(size)) == 1


def test_who_keeps_fewer_keeps_none_that_another_leaves_out() -> None:
    for halvings in range(6):
        fewer = {block for block in range(2000) if is_kept(block, halvings + 1)}
        assert fewer < {block for block in range(2000) if is_kept(block, halvings)}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("period", [2, 3, 4, 8, 10, 16])
@pytest.mark.parametrize("halvings", [1, 2, 4])
def test_whatever_comes_at_regular_distances_is_kept_as_often_as_the_rest(period: int, halvings: int) -> None:
    kept = np.array([is_kept(block, halvings) for block in range(64_000)])
    for place in range(period):
        share = kept[place::period].mean()
        assert share == pytest.approx(1 / 2**halvings, rel=0.15)


def test_blocks_are_left_out_until_the_next_that_is_kept() -> None:
    for block in range(200):
        count = left_out(block, 3)
        assert is_kept(block + count, 3)
        assert not any(is_kept(block + between, 3) for between in range(count))
