"""What is tried for which signs, and when a try has paid: single windows, made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.loader.autotuning.climber import Move, MoveVerdict, judge, moves
from headrace.loader.autotuning.observation import Observation, Setting, TuningBounds

STEPS = 200
BOUNDS = TuningBounds((1, 8), (1, 16))


def seen(step_s=0.1, *, wait=0.0, busy=2.0, cores=2.0, own=0.0, full=0.0, ready=1, jitter=0.0, threads=4, steps=STEPS):
    """Shares of time: of waiting, and of all places being filled. `jitter` is a step's standard deviation, in steps."""
    wall_s = steps * step_s
    return Observation(
        steps=steps,
        wall_s=wall_s,
        squares_s2=steps * step_s**2 * (1 + jitter**2),
        wait_s=wait * wall_s,
        feed_wait_s=full * wall_s,
        idle_s=(threads - busy) * wall_s,
        cpu_s=cores * wall_s,
        consumer_cpu_s=own * wall_s,
        lowest_ready=ready,
        batch_bytes=1,
        available_bytes=None,
    )


@pytest.mark.parametrize(
    ("observation", "tried"),
    [
        (seen(wait=1.0, busy=4.0), [("threads", 8)]),
        (seen(wait=0.5, busy=3.95), [("threads", 8)]),
        (seen(wait=0.25, busy=3.9), [("threads", 6), ("prefetch", 6)]),
        (seen(wait=0.05, busy=3.5), [("threads", 5), ("prefetch", 6)]),
        (seen(wait=0.05, busy=2.5), [("prefetch", 6), ("threads", 5)]),
        (seen(wait=0.05, busy=1.5, cores=1.5), [("prefetch", 6)]),
        (seen(wait=0.015, busy=3.5), [("prefetch", 6)]),
        (seen(wait=0.0, busy=3.5), []),
        (seen(wait=0.0, busy=1.9, cores=1.9), []),
        (seen(wait=0.0, busy=1.0, cores=1.0), [("threads", 2)]),
        (seen(wait=0.0, busy=3.5, ready=2), [("prefetch", 3)]),
        (seen(wait=0.0, busy=3.5, ready=2, steps=STEPS - 1), []),
    ],
)
def test_signs_and_tries(observation, tried):
    assert [(move.knob, move.value) for move in moves(Setting(4, 4), observation, observation, BOUNDS)] == tried


def test_training_on_cores_lets_busy_threads_be_fewer():
    """Eight threads and a consumer on eight cores, of which the feed takes six."""
    at_most = Setting(8, 4)
    busy = seen(busy=7.5, cores=7.0, own=1.0, threads=8)
    assert [move.value for move in moves(at_most, busy, busy, BOUNDS)] == [7]
    idle_consumer = replace(busy, consumer_cpu_s=0.0)
    assert list(moves(at_most, idle_consumer, idle_consumer, BOUNDS)) == []
    starving = replace(busy, wait_s=0.3 * busy.wall_s)
    assert all(move.up for move in moves(at_most, starving, starving, BOUNDS))


@pytest.mark.parametrize(
    "bounds", [TuningBounds((4, 4), (1, 16)), TuningBounds((1, 8), (4, 4)), TuningBounds((4, 4), (4, 4))]
)
def test_a_given_knob_is_not_tried(bounds):
    for observation in (seen(wait=0.5, busy=3.0), seen(busy=0.5, cores=0.5, ready=4)):
        for move in moves(Setting(4, 4), observation, observation, bounds):
            assert not bounds.is_given(move.knob)


MORE, AHEAD = Move("threads", 5, True), Move("prefetch", 6, True)
FEWER, LESS_AHEAD = Move("threads", 3, False), Move("prefetch", 3, False)


@pytest.mark.parametrize(
    ("move", "before", "now", "verdict"),
    [
        (MORE, seen(0.100, wait=0.1), seen(0.097), MoveVerdict.KEEP),
        (MORE, seen(0.100, wait=0.1), seen(0.099), MoveVerdict.BACK),
        (MORE, seen(0.100, wait=0.1), seen(0.110), MoveVerdict.BACK),
        (MORE, seen(0.100, wait=1.0), seen(0.100, wait=1.0), MoveVerdict.KEEP),
        (MORE, seen(0.100, wait=1.0), seen(0.110, wait=1.0), MoveVerdict.BACK),
        (MORE, seen(0.100, wait=0.1, jitter=1.0), seen(0.097, jitter=1.0), MoveVerdict.LONGER),
        (AHEAD, seen(0.100, wait=0.04), seen(0.099, wait=0.01), MoveVerdict.KEEP),
        (AHEAD, seen(0.100, wait=0.04), seen(0.099, wait=0.035), MoveVerdict.BACK),
        (FEWER, seen(0.100), seen(0.090), MoveVerdict.KEEP),
        (FEWER, seen(0.100), seen(0.1005, full=0.1), MoveVerdict.KEEP),
        (FEWER, seen(0.100), seen(0.1005, full=0.0), MoveVerdict.BACK),
        (FEWER, seen(0.100), seen(0.1005, full=0.1, wait=0.02), MoveVerdict.BACK),
        (FEWER, seen(0.100), seen(0.102, full=0.1), MoveVerdict.BACK),
        (LESS_AHEAD, seen(0.100), seen(0.100), MoveVerdict.KEEP),
        (LESS_AHEAD, seen(0.100), seen(0.100, wait=0.02), MoveVerdict.BACK),
    ],
)
def test_when_a_try_has_paid(move, before, now, verdict):
    assert judge(move, before, now, 1) is verdict


def test_nobody_looks_for_ever():
    before, now = seen(0.100, wait=0.1, jitter=1.0), seen(0.097, jitter=1.0)
    assert [judge(MORE, before, now, windows) for windows in (2, 3)] == [MoveVerdict.LONGER, MoveVerdict.BACK]
