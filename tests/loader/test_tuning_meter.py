"""Windows of steps, and a pass that is tuned, with moments that the test says."""

from __future__ import annotations

import threading

import pytest

from headrace.loader.autotuning.climber import Reasons
from headrace.loader.autotuning.observation import Observation, Readings, Setting, StepMeter, TuningBounds
from headrace.loader.autotuning.tuner import TunedPass, Tuner


def take(meter, steps, *, work_s, wait_s=0.0, ready=1, now_s=0.0):
    """The windows that so many like steps make, and the moment after them."""
    windows = []
    for _ in range(steps):
        asked_s = now_s + work_s
        now_s = asked_s + wait_s
        window = meter.took(asked_s, now_s, ready)
        windows += [] if window is None else [window]
    return windows, now_s


def test_a_window_sums_its_steps():
    windows, _ = take(StepMeter(0), 1 + 8, work_s=0.06, wait_s=0.04)
    assert [window.steps for window in windows] == [4, 4]
    for window in windows:
        assert window.wall_s == pytest.approx(0.4)
        assert window.wait_s == pytest.approx(0.16)
        assert window.squares_s2 == pytest.approx(4 * 0.01)
        assert window.lowest_ready == 1


def test_fast_steps_make_long_windows_and_slow_ones_short_ones():
    (fast, *_), _ = take(StepMeter(0), 200, work_s=0.002)
    assert fast.steps == 150
    (slow, *_), _ = take(StepMeter(0), 5, work_s=1.5)
    assert slow.steps == 2


def test_what_was_promised_before_is_left_out():
    meter = StepMeter(3)
    assert not meter.begins
    windows, now_s = take(meter, 4, work_s=9.0)
    assert (windows, meter.begins) == ([], True)
    (window,), _ = take(meter, 4, work_s=0.1, now_s=now_s)
    assert window.wall_s == pytest.approx(0.4)


def test_a_pause_is_no_step_and_neither_are_the_batches_made_meanwhile():
    meter = StepMeter(0)
    _, now_s = take(meter, 3, work_s=0.1)
    assert meter.took(now_s + 30, now_s + 30, 5) is None
    now_s += 30
    assert not meter.begins
    windows, now_s = take(meter, 6, work_s=0.1, now_s=now_s)
    assert (windows, meter.begins) == ([], True)
    (window,), _ = take(meter, 4, work_s=0.1, now_s=now_s)
    assert window.wall_s == pytest.approx(0.4)


def test_steps_that_stay_long_are_no_pause():
    meter = StepMeter(0)
    _, now_s = take(meter, 3, work_s=0.01)
    windows, _ = take(meter, 12, work_s=1.0, now_s=now_s, ready=2)
    assert windows
    assert windows[-1].wall_s / windows[-1].steps == pytest.approx(1.0)


def test_a_wait_is_never_a_pause():
    meter = StepMeter(0)
    _, now_s = take(meter, 3, work_s=0.01)
    (window,), _ = take(meter, 2, work_s=0.01, wait_s=5.0, now_s=now_s)
    assert window.wait_s == pytest.approx(5.0)


def seen(steps, wall_s, squares_s2, **others):
    given = {"wait_s": 1.0, "feed_wait_s": 0.5, "idle_s": 0.8, "cpu_s": 1.5, "consumer_cpu_s": 0.5, "lowest_ready": 2}
    given |= {"batch_bytes": 10, "available_bytes": 100}
    return Observation(steps=steps, wall_s=wall_s, squares_s2=squares_s2, **(given | others))


def test_an_observation_in_shares():
    one = seen(4, 2.0, 1.0)
    assert (one.step_s, one.wait_share, one.feed_wait_share) == (0.5, 0.5, 0.25)
    assert one.busy_threads(2) == pytest.approx(1.6)
    assert one.error_s == 0
    # Steps of 1, 2 and 3 seconds: a deviation of sqrt(2/3), and n - 1 in the error of the mean.
    assert seen(3, 6.0, 14.0).error_s == pytest.approx((2 / 3 / 2) ** 0.5)


def test_joined_is_what_one_window_over_both_would_be():
    joined = seen(2, 1.0, 0.5, lowest_ready=3).joined(seen(3, 2.0, 1.5, lowest_ready=1, available_bytes=50))
    assert (joined.steps, joined.wall_s, joined.squares_s2, joined.wait_s) == (5, 3.0, 2.0, 2.0)
    assert (joined.lowest_ready, joined.available_bytes, joined.batch_bytes) == (1, 50, 10)


class Feed:
    """What a pass reads and turns: readings grow by a second at each look."""

    def __init__(self):
        self.set_to = []
        self.looks = 0
        self.most_threads = 99
        self.ended = False

    def readings(self):
        self.looks += 1
        return Readings(self.looks, 10 * self.looks, 100 * self.looks, 7 * self.looks, 4)

    def set(self, setting):
        if self.ended:
            return None
        self.set_to.append(setting)
        return min(setting.threads, self.most_threads)


class Scripted(Tuner):
    """Goes from setting to setting, one for each observation."""

    def __init__(self, *settings):
        super().__init__(settings[0], TuningBounds((1, 8), (1, 16)))
        self.left = list(settings[1:])
        self.seen = []
        self.refused = []

    def observe(self, seen):
        self.seen.append(seen)
        if self.left:
            self.setting = self.left.pop(0)

    def refuse_threads(self, most):
        self.refused.append(most)
        super().refuse_threads(most)


def taken(tuned, steps, now_s, ready=0):
    for _ in range(steps):
        tuned.took(now_s, now_s + 0.1, ready)
        now_s += 0.1
    return now_s


def test_a_pass_tells_what_happened_within_a_window_and_follows():
    tuner, feed = Scripted(Setting(1, 2), Setting(2, 4)), Feed()
    tuned = TunedPass(tuner, feed)
    now_s = taken(tuned, 1 + 3 + 4, 0.0)
    (first,) = tuner.seen
    assert (first.steps, first.feed_wait_s, first.idle_s, first.cpu_s, first.batch_bytes) == (4, 1, 10, 100, 4)
    assert first.consumer_cpu_s == 7
    assert first.available_bytes is None or first.available_bytes > 0
    assert (feed.set_to, tuned.setting) == ([Setting(2, 4)], Setting(2, 4))
    taken(tuned, 3 + 4, now_s)  # one, and two for memory that is new
    assert len(tuner.seen) == 2
    assert len(feed.set_to) == 1


def test_what_was_ready_at_a_change_is_not_measured():
    tuner = Scripted(Setting(2, 4), Setting(1, 4))
    tuned = TunedPass(tuner, Feed())
    now_s = taken(tuned, 1 + 5 + 4, 0.0, ready=3)
    assert len(tuner.seen) == 1
    taken(tuned, 4 + 3, now_s)
    assert len(tuner.seen) == 1
    taken(tuned, 1, now_s + 0.7)
    assert len(tuner.seen) == 2


def test_of_two_passes_each_follows_and_tells_only_of_what_it_has_been_set_to():
    tuner, feeds = Scripted(Setting(1, 1), Setting(2, 1)), [Feed(), Feed()]
    first, second = (TunedPass(tuner, feed) for feed in feeds)
    taken(second, 1 + 2 + 3, 0.0)
    taken(first, 1 + 2 + 4, 0.0)
    assert len(tuner.seen) == 1
    taken(second, 1, 0.6)  # its window is full, but of another setting
    assert len(tuner.seen) == 1
    assert feeds[1].set_to == [Setting(2, 1)]


def test_a_pass_that_has_ended_is_not_set():
    tuner, feed = Scripted(Setting(1, 1), Setting(2, 1)), Feed()
    feed.ended = True
    tuned = TunedPass(tuner, feed)
    taken(tuned, 20, 0.0)
    assert tuned.setting == Setting(1, 1)


def test_a_refused_thread_is_told():
    tuner, feed = Scripted(Setting(1, 1), Setting(6, 1)), Feed()
    feed.most_threads = 3
    tuned = TunedPass(tuner, feed)
    taken(tuned, 1 + 2 + 4, 0.0)
    assert (tuner.refused, tuned.setting) == ([3], Setting(3, 1))


def test_nothing_is_read_where_both_are_given():
    feed = Feed()
    tuned = TunedPass(Tuner(Setting(2, 3), TuningBounds((2, 2), (3, 3))), feed)
    taken(tuned, 50, 0.0)
    assert (feed.looks, feed.set_to) == (0, [])


def test_a_tuner_listens_to_one_pass_at_a_time(monkeypatch):
    """Two passes on their way to a device tell it in two threads; the climber is not made for that."""
    tuner = Tuner(Setting(1, 1), TuningBounds((1, 8), (1, 16)))
    heard = []

    def observe(climber, found):
        heard.append(found)
        if len(heard) == 1:
            other = threading.Thread(target=tuner.observe, args=(seen(5, 2.0, 1.0),))
            other.start()
            other.join()
            tuner.refuse_threads(3)

    monkeypatch.setattr("headrace.loader.autotuning.climber.Climber.observe", observe)
    for steps in (4, 6):
        tuner.observe(seen(steps, 2.0, 1.0))
    assert [each.steps for each in heard] == [4, 6]
    assert tuner.bounds.threads == (1, 8)


def test_reasons_may_be_asked_for_while_they_change():
    class Vanishing(dict):
        def __contains__(self, key):
            found = super().__contains__(key)
            self.pop(key, None)
            return found

    reasons = Reasons(Vanishing(threads="2 made a step 5% longer"), Vanishing(prefetch="9 were no faster"))
    assert set(reasons.of(Setting(3, 3), TuningBounds((1, 8), (1, 16)))) == {"threads", "prefetch"}
