"""Windows of steps of a tuned pass, and what single windows make a tuner try and keep: made up, without a clock."""

from __future__ import annotations

import threading

import pytest

from headrace.loader.autotuning.tuned_pass import TunedPass
from headrace.loader.autotuning.tuner import KNOBS, Observation, Setting, Tuner

MOST = Setting(8, 16)
START = Setting(4, 4)


class Scripted(Tuner):
    """Goes from setting to setting, one for each observation, and notes what it is told."""

    def __init__(self, *settings):
        super().__init__(settings[0], MOST)
        self.left = list(settings[1:])
        self.seen = []

    def observe(self, seen):
        self.seen.append(seen)
        if self.left:
            self.setting = self.left.pop(0)


class Feed:
    """What a pass reads and turns: readings grow at each look."""

    def __init__(self, tuner):
        self.set_to = []
        self.looks = 0
        self.most_threads = 99
        self.ended = False
        self.now_s = 0.0
        self.tuned = TunedPass(tuner, self.readings, self.set, lambda: 100)

    def readings(self):
        self.looks += 1
        return Observation(feed_wait_s=self.looks, idle_s=10 * self.looks, consumer_cpu_s=7 * self.looks, batch_bytes=4)

    def set(self, setting):
        if self.ended:
            return None
        self.set_to.append(setting)
        return min(setting.threads, self.most_threads)

    def take(self, steps, *, work_s=0.0, wait_s=0.1, ready=0):
        for _ in range(steps):
            asked_s = self.now_s + work_s
            self.now_s = asked_s + wait_s
            self.tuned.took(asked_s, self.now_s, ready)


def fed(*settings, settled=False):
    """A feed whose batches were promised before nothing, and its tuner."""
    tuner = Scripted(*settings or (Setting(1, 1),))
    feed = Feed(tuner)
    if settled:
        feed.take(1 + feed.tuned.setting.prefetch + 1)
    return feed, tuner


def test_a_window_sums_its_steps():
    feed, tuner = fed(settled=True)
    feed.take(8, work_s=0.06, wait_s=0.04, ready=1)
    assert [window.steps for window in tuner.seen] == [4, 4]
    for window in tuner.seen:
        assert window.wall_s == pytest.approx(0.4)
        assert window.wait_s == pytest.approx(0.16)
        assert window.squares_s2 == pytest.approx(4 * 0.01)
        assert window.lowest_ready == 1
        assert (window.feed_wait_s, window.idle_s, window.consumer_cpu_s) == (1, 10, 7)
        assert (window.batch_bytes, window.available_bytes) == (4, 100)


def test_fast_steps_make_long_windows():
    feed, tuner = fed(settled=True)
    feed.take(200, work_s=0.002, wait_s=0.0)
    assert tuner.seen[0].steps == 150


def test_first_batches_are_left_out():
    feed, tuner = fed(Setting(1, 2))
    feed.take(1 + 3, work_s=9.0)
    feed.take(4)
    (window,) = tuner.seen
    assert window.wall_s == pytest.approx(0.4)


def test_a_pause_is_no_step_and_neither_are_the_batches_made_meanwhile():
    feed, tuner = fed(settled=True)
    feed.take(3)
    feed.take(1, work_s=30.0, ready=5)
    feed.take(6)
    assert tuner.seen == []
    feed.take(4)
    (window,) = tuner.seen
    assert window.wall_s == pytest.approx(0.4)


def test_steps_that_stay_long_are_no_pause():
    feed, tuner = fed(settled=True)
    feed.take(3, work_s=0.01, wait_s=0.0)
    feed.take(12, work_s=1.0, wait_s=0.0, ready=2)
    assert tuner.seen[-1].step_s == pytest.approx(1.0)


def test_a_wait_is_never_a_pause():
    feed, tuner = fed(settled=True)
    feed.take(3, work_s=0.01, wait_s=0.0)
    feed.take(1, work_s=0.01, wait_s=5.0)
    assert tuner.seen[0].wait_s == pytest.approx(5.0)


def test_a_pass_follows_once_what_was_ready_is_used_up():
    feed, tuner = fed(Setting(1, 2), Setting(2, 4))
    feed.take(1 + 3 + 4)
    assert (feed.set_to, feed.tuned.setting) == ([Setting(2, 4)], Setting(2, 4))
    feed.take(3 + 3)  # one, and two for memory that is new
    assert len(tuner.seen) == 1
    feed.take(1)
    assert len(tuner.seen) == 2
    feed, tuner = fed(Setting(2, 4), Setting(1, 4))
    feed.take(1 + 5 + 4, ready=3)
    feed.take(4 + 3)
    assert len(tuner.seen) == 1
    feed.take(1)
    assert len(tuner.seen) == 2


def test_of_two_passes_each_follows_and_tells_only_of_what_it_has_been_set_to():
    first, tuner = fed(Setting(1, 1), Setting(2, 1))
    second = Feed(tuner)
    second.take(1 + 2 + 3)
    first.take(1 + 2 + 4)
    assert len(tuner.seen) == 1
    second.take(1)  # its window is full, but of another setting
    assert len(tuner.seen) == 1
    assert second.set_to == [Setting(2, 1)]


def test_a_pass_that_has_ended_is_not_set():
    feed, _ = fed(Setting(1, 1), Setting(2, 1))
    feed.ended = True
    feed.take(20)
    assert feed.tuned.setting == Setting(1, 1)


def test_a_refused_thread_is_told():
    feed, tuner = fed(Setting(1, 1), Setting(6, 1))
    feed.most_threads = 3
    feed.take(1 + 2 + 4)
    assert (tuner.setting, feed.tuned.setting) == (Setting(3, 1), Setting(3, 1))


def test_nothing_is_read_where_both_are_given():
    feed = Feed(Tuner(Setting(2, 3), Setting(2, 3), ()))
    feed.take(50)
    assert feed.looks == 0


def seen(step_s=0.1, *, wait=0.0, busy=2.0, own=0.0, full=0.0, ready=1, jitter=0.0, threads=4, steps=50):
    """Shares of time: of waiting, and of all places being filled. `jitter` is a step's standard deviation, in steps."""
    wall_s = steps * step_s
    return Observation(
        steps=steps,
        wall_s=wall_s,
        squares_s2=steps * step_s**2 * (1 + jitter**2),
        wait_s=wait * wall_s,
        feed_wait_s=full * wall_s,
        idle_s=(threads - busy) * wall_s,
        consumer_cpu_s=own * wall_s,
        lowest_ready=ready,
    )


@pytest.mark.parametrize(
    ("observation", "tried"),
    [
        (seen(wait=1.0, busy=4.0), Setting(6, 4)),
        (seen(wait=0.05, busy=3.5), Setting(6, 4)),
        (seen(wait=0.05, busy=2.5), Setting(4, 6)),
        (seen(wait=0.05, busy=1.5), Setting(4, 6)),
        (seen(wait=0.0, busy=3.5), START),
        (seen(wait=0.0, busy=1.9), START),
        (seen(wait=0.0, busy=1.0), Setting(3, 4)),
        (seen(wait=0.0, busy=3.5, own=0.5), Setting(3, 4)),
        (seen(wait=0.0, busy=3.5, ready=2), Setting(4, 3)),
    ],
)
def test_signs_and_tries(observation, tried):
    tuner = Tuner(START, MOST)
    tuner.observe(observation)
    assert tuner.setting == tried


STARVED, WAITED, CALM = seen(wait=0.1, busy=4.0), seen(wait=0.04, busy=3.5), seen(busy=1.0)
JITTER = seen(wait=0.1, busy=4.0, jitter=1.0)


@pytest.mark.parametrize(
    ("knob", "before", "now", "value"),
    [
        ("threads", STARVED, seen(0.097, threads=6, busy=5), 6),
        ("threads", STARVED, seen(0.099, threads=6, busy=5), 4),
        ("threads", STARVED, seen(0.110, threads=6, busy=5), 4),
        ("threads", JITTER, seen(0.097, jitter=1.0, threads=6, busy=5), 4),
        ("prefetch", WAITED, seen(0.099, wait=0.009), 6),
        ("prefetch", WAITED, seen(0.099, wait=0.035), 4),
        ("threads", CALM, seen(0.090, threads=3, busy=2), 3),
        ("threads", CALM, seen(0.1005, threads=3, busy=2, full=0.1), 3),
        ("threads", CALM, seen(0.1005, threads=3, busy=2, full=0.0), 4),
        ("threads", CALM, seen(0.1005, threads=3, busy=2, full=0.1, wait=0.02), 4),
        ("threads", CALM, seen(0.102, threads=3, busy=2, full=0.1), 4),
        ("prefetch", seen(ready=2), seen(0.100), 3),
        ("prefetch", seen(ready=2), seen(0.100, wait=0.02), 4),
    ],
)
def test_a_try_stays_if_it_pays(knob, before, now, value):
    tuner = Tuner(START, MOST, (knob,))
    tuner.observe(before)
    assert tuner.setting != START
    for _ in range(2):
        tuner.observe(now)
    assert tuner.setting.of(knob) == value


@pytest.mark.parametrize("tuned", [(), *((knob,) for knob in KNOBS)])
def test_a_given_knob_is_not_tried(tuned):
    for observation in (seen(wait=0.5, busy=3.0), seen(busy=0.5, ready=4)):
        tuner = Tuner(START, MOST, tuned)
        tuner.observe(observation)
        assert all(tuner.setting.of(knob) == 4 for knob in KNOBS if knob not in tuned)


def test_reports_of_two_threads_at_once_are_one(monkeypatch):
    """Two passes on their way to a device tell it in two threads; the climbing is not made for that."""
    tuner, heard = Tuner(Setting(1, 1), MOST), []

    def climb(self, observation):
        heard.append(observation.steps)
        if len(heard) == 1:
            other = threading.Thread(target=tuner.observe, args=(seen(steps=5),))
            other.start()
            other.join()
            tuner.refuse_threads(3)

    monkeypatch.setattr(Tuner, "_climb", climb)
    for steps in (4, 6):
        tuner.observe(seen(steps=steps))
    assert heard == [4, 6]
    assert tuner.most == MOST
