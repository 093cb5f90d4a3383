"""Requests hold each wanted range whole, join what the link says is near, and are as few as can be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UsageError
from headrace.stores.request_planning import LinkModel, RequestPlan, WantedRanges, plan_requests

SLOW = LinkModel(latency_s=0.08, bandwidth=25e6, streams=16)
"""Gap of 119,047 bytes, requests of 1 MiB at most."""


def wanted(*ranges: tuple[int, int, int, int]) -> WantedRanges:
    return WantedRanges(*(np.array(column, np.int64) for column in zip(*ranges, strict=True)))


def parts(plan: RequestPlan) -> list[tuple[int, int, int, int]]:
    return list(zip(*(each.tolist() for each in (plan.object, plan.start, plan.stop, plan.need)), strict=True))


def test_neighbours_share_a_request_and_take_the_earliest_need() -> None:
    plan = plan_requests(wanted((0, 500, 900, 7), (1, 0, 10, 1), (0, 0, 400, 9)), SLOW)
    assert parts(plan) == [(0, 0, 900, 7), (1, 0, 10, 1)]
    assert plan.part_of.tolist() == [0, 1, 0]
    assert plan.by_need() == [1, 0]


def test_a_gap_is_read_as_long_as_that_is_cheaper_than_a_request() -> None:
    assert SLOW.gap_bytes == 119_047
    assert len(plan_requests(wanted((0, 0, 10, 0), (0, 119_057, 119_067, 0)), SLOW)) == 1
    assert len(plan_requests(wanted((0, 0, 10, 0), (0, 119_058, 119_068, 0)), SLOW)) == 2


def test_a_gap_on_a_fast_link_is_worth_the_cpu_time_of_a_request() -> None:
    fast, faster = (LinkModel(latency_s=0.02, bandwidth=bandwidth, streams=128) for bandwidth in (1e9, 1e12))
    assert fast.gap_bytes < faster.gap_bytes < 0.5e6  # reading it is never free
    few = LinkModel(latency_s=0.02, bandwidth=1e9, streams=2)
    assert few.gap_bytes > 10 * fast.gap_bytes  # where a store bears few requests, their latency counts


def test_streams_hold_twice_what_is_under_way_on_the_link() -> None:
    link = LinkModel(latency_s=0.1, bandwidth=500e6, streams=32)
    assert link.streams_for(500_000) == 200
    assert link.streams_for(5_000_000) == 20
    assert LinkModel(latency_s=0.0, bandwidth=500e6, streams=32).streams_for(0) == 1


def test_a_range_inside_another_needs_no_part_of_its_own() -> None:
    plan = plan_requests(wanted((3, 0, 3_000_000, 2), (3, 100, 200, 1)), SLOW)
    assert parts(plan) == [(3, 0, 3_000_000, 1)]
    assert plan.request_count == 3
    assert [(each.start, each.stop) for each in plan.requests(0, None)] == [
        (0, 1_000_000),
        (1_000_000, 2_000_000),
        (2_000_000, 3_000_000),
    ]


def test_nothing_wanted_is_no_request() -> None:
    none = WantedRanges.joined([])
    assert len(plan_requests(none, SLOW)) == 0


def test_a_link_of_no_bandwidth_is_refused() -> None:
    with pytest.raises(UsageError, match="bandwidth above 0"):
        LinkModel(latency_s=0.1, bandwidth=0, streams=1)


@st.composite
def many_ranges(draw: st.DrawFn) -> WantedRanges:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 4_000_000), st.integers(0, 1_500_000), st.integers(0, 50)),
            min_size=1,
            max_size=40,
        )
    )
    return wanted(*((number, start, start + size, need) for number, start, size, need in rows))


@given(many_ranges(), st.sampled_from([SLOW, LinkModel(0.0, 1e9, 4), LinkModel(0.1, 1e9, 8)]))
def test_parts_hold_what_is_wanted_and_no_more_than_they_may(ranges: WantedRanges, link: LinkModel) -> None:
    plan = plan_requests(ranges, link)
    assert np.array_equal(plan.object[plan.part_of], ranges.object)
    assert (plan.start[plan.part_of] <= ranges.start).all()
    assert (plan.stop[plan.part_of] >= ranges.stop).all()
    for part, (number, start, stop, need) in enumerate(parts(plan)):
        held = [
            (int(ranges.start[i]), int(ranges.stop[i]), int(ranges.need[i]))
            for i in np.flatnonzero(plan.part_of == part)
        ]
        assert (start, stop, need) == (min(a for a, _, _ in held), max(b for _, b, _ in held), min(n for *_, n in held))
        assert largest_gap(held) <= link.gap_bytes
        reads = list(plan.requests(part, number))
        assert all(read.bytes <= link.request_bytes and read.object == number for read in reads)
        assert [read.start for read in reads[1:]] == [read.stop for read in reads[:-1]]
        assert (reads[0].start, reads[-1].stop) == (start, stop)
    assert sum(len(list(plan.requests(part, None))) for part in range(len(plan))) == plan.request_count
    assert plan.request_count >= slow_fewest(ranges, link)


def largest_gap(held: list[tuple[int, int, int]]) -> int:
    reach, gap = 0, 0
    for at, (start, stop, _) in enumerate(sorted(held)):
        gap = max(gap, start - reach if at else 0)
        reach = max(reach, stop)
    return gap


def slow_fewest(ranges: WantedRanges, link: LinkModel) -> int:
    """Count runs byte by byte of each object, as a sweep over sorted edges."""
    count = 0
    for number in set(ranges.object.tolist()):
        rows = sorted(
            (int(a), int(b)) for o, a, b in zip(ranges.object, ranges.start, ranges.stop, strict=True) if o == number
        )
        begin, reach = rows[0]
        for start, stop in rows[1:]:
            if start > reach + link.gap_bytes:
                count += max(1, -(-(reach - begin) // link.request_bytes))
                begin = start
            reach = max(reach, stop)
        count += max(1, -(-(reach - begin) // link.request_bytes))
    return count
