"""Requests by a clock of their own: order, retries, second requests, deadlines, throttling; then in a real thread."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from processes import DEADLINE_S, eventually, in_fork
from virtual_time import MadeStore, content, reset, run_virtually

from headrace.errors import HeadraceError, ReadError
from headrace.stores import FailedRequestError, FailureKind, request_engine
from headrace.stores.link import Overtaking, streams_of_rank
from headrace.stores.request_engine import RequestEngine
from headrace.stores.request_planning import Request
from headrace.stores.request_runner import RequestRunner


def requests(count: int, size: int = 100) -> list[Request]:
    return [Request(number % 7, size * number, size * (number + 1), number) for number in range(count)]


async def run(store: MadeStore, wanted: Sequence[Request], **options: Any) -> tuple[list[Any], RequestRunner]:
    runner = RequestRunner(store, **options)
    return list(await asyncio.gather(*(runner.start(each) for each in wanted), return_exceptions=True)), runner


def test_each_request_gets_its_own_bytes() -> None:
    wanted = requests(40)
    (found, runner), _ = run_virtually(run(MadeStore(lambda at: 0.01 * (at % 5)), wanted))
    assert found == [content(each.object, each.start, each.stop) for each in wanted]
    assert (runner.counts.requests, runner.counts.bytes, runner.counts.retries) == (40, 4000, 0)


def test_the_most_urgent_goes_first_and_streams_are_bounded() -> None:
    wanted = [Request(0, at, at + 1, need) for at, need in enumerate((9, 8, 1, 7, 0, 5))]
    store = MadeStore(lambda _: 1.0)
    run_virtually(run(store, wanted, streams=1))
    assert [start for *_, start, _ in store.seen] == [0, 4, 2, 5, 3, 1]  # the first was alone when it came
    assert store.most_under_way == 1
    wide = MadeStore(lambda _: 1.0)
    _, took_s = run_virtually(run(wide, requests(64), streams=16))
    assert wide.most_under_way == 16
    assert took_s == pytest.approx(4.0)


def test_what_may_pass_is_tried_again_with_longer_pauses() -> None:
    store = MadeStore(lambda at: (0.0, reset()) if at < 3 else 0.0)
    (found, runner), took_s = run_virtually(run(store, requests(1)))
    assert found == [content(0, 0, 100)]
    assert runner.counts.retries == 3
    pauses = [later[0] - before[0] for before, later in zip(store.seen[:-1], store.seen[1:], strict=True)]
    for pause_s, mean_s in zip(pauses, (0.05, 0.1, 0.2), strict=True):
        assert 0.5 <= pause_s / mean_s <= 1.5
    assert took_s < 1


def test_a_store_that_stays_away_is_an_error_that_names_the_range_and_the_attempts() -> None:
    store = MadeStore(lambda _: (0.0, reset()))
    (found, _), took_s = run_virtually(run(store, requests(1)))
    assert isinstance(found[0], ReadError)
    assert str(found[0]) == f"object 0 [0, 100): connection reset, at {len(store.seen)} attempts"
    assert 280 < took_s <= 300


@pytest.mark.parametrize("reason", ["connection reset", "503 SlowDown"])
@pytest.mark.parametrize("count", [1, 400])
def test_one_request_probes_a_store_that_is_away_and_its_answer_releases_the_others(reason: str, count: int) -> None:
    gone = FailedRequestError(FailureKind.PASSING, reason)
    begun, ended = 0.2, 4.2

    def answer(_: int) -> Any:
        now_s = asyncio.get_running_loop().time()
        return (0.02, gone) if count == 1 or begun < now_s < ended else 0.02

    def once(at: int) -> Any:
        return (0.02, gone) if asyncio.get_running_loop().time() < 4.0 else 0.02

    store = MadeStore(once if count == 1 else answer)
    (found, _), took_s = run_virtually(run(store, requests(count), streams=8))
    assert found == [content(each.object, each.start, each.stop) for each in requests(count)]
    assert took_s < 6.0 + count / 8 * 0.02
    probes = [time_s for time_s, *_ in store.seen if begun + 2 < time_s < ended]
    assert len(probes) <= 3


def test_a_store_that_throttles_at_random_keeps_streams_busy() -> None:
    """Halving by each throttled answer would leave one stream, for 27 times the time."""
    draw, refused = random.Random(1), FailedRequestError(FailureKind.PASSING, "503 SlowDown")
    store = MadeStore(lambda _: (0.02, refused) if draw.random() < 0.3 else 0.02)
    (found, runner), took_s = run_virtually(run(store, requests(800), streams=16))
    assert found == [content(each.object, each.start, each.stop) for each in requests(800)]
    assert runner.counts.throttled < 0.5 * 800
    assert took_s < 4 * 800 / 16 * 0.02


def test_what_stays_wrong_is_raised_at_once() -> None:
    store = MadeStore(lambda _: (0.0, FailedRequestError(FailureKind.MISSING, "no such object")))
    (found, _), took_s = run_virtually(run(store, requests(1)))
    assert str(found[0]) == "object 0 [0, 100): no such object, at 1 attempts"
    assert (len(store.seen), took_s) == (1, 0)


def test_refused_credentials_are_renewed_once_for_all_requests_under_way() -> None:
    expired = FailedRequestError(FailureKind.CREDENTIALS, "expired")
    store = MadeStore(lambda at: (0.1, expired) if at < 16 else 0.1)
    (found, runner), took_s = run_virtually(run(store, requests(16), streams=16))
    assert found == [content(each.object, each.start, each.stop) for each in requests(16)]
    assert (store.renewed, runner.counts.retries) == (1, 16)
    assert took_s == pytest.approx(0.2)  # nobody pauses
    refused = MadeStore(lambda _: (0.1, expired))
    (found, _), _ = run_virtually(run(refused, requests(1)))
    assert str(found[0]) == "object 0 [0, 100): expired, at 4 attempts"


def test_a_cut_answer_is_asked_for_again() -> None:
    store = MadeStore(lambda at: (0.0, b"short") if at == 0 else 0.0)
    (found, runner), _ = run_virtually(run(store, requests(1)))
    assert found == [content(0, 0, 100)]
    assert runner.counts.retries == 1


def test_nothing_is_waited_for_beyond_its_deadline() -> None:
    store = MadeStore(lambda _: 1e9)
    (found, _), took_s = run_virtually(run(store, requests(1)))
    assert "no whole answer within 60 s, at 7 attempts" in str(found[0])
    begun = [time_s for time_s, *_ in store.seen]
    assert begun == pytest.approx([0, 10, 36, 83, 151, 219, 287], abs=12)  # twice as long each time, up to a minute
    assert took_s < 360


def test_a_link_too_slow_for_the_first_deadline_is_measured_by_a_later_attempt() -> None:
    store = MadeStore(lambda at: 15.0)
    (found, runner), _ = run_virtually(run(store, requests(40), streams=8))
    assert found == [content(each.object, each.start, each.stop) for each in requests(40)]
    assert runner.counts.retries == 8  # those that began before the link was known


def test_a_request_that_lags_is_sent_a_second_time() -> None:
    slow = {300, 450}
    store = MadeStore(lambda at: 2.0 if at in slow else 0.02)
    (found, runner), took_s = run_virtually(run(store, requests(600), streams=8))
    assert found == [content(each.object, each.start, each.stop) for each in requests(600)]
    assert (runner.counts.hedges, runner.counts.hedges_won) == (2, 2)
    assert len(store.seen) == 602
    assert took_s < 600 / 8 * 0.02 + 0.3  # neither took its two seconds


def test_the_first_request_lags_once_those_beside_it_were_answered() -> None:
    """Nothing is known of the link when it is sent: what comes meanwhile tells that it is late."""
    store = MadeStore(lambda at: 2.0 if at == 0 else 0.02)
    (found, runner), took_s = run_virtually(run(store, requests(16), streams=16))
    assert found == [content(each.object, each.start, each.stop) for each in requests(16)]
    assert (runner.counts.hedges, runner.counts.hedges_won) == (1, 1)
    assert took_s < 0.2


def test_a_large_answer_that_begins_late_is_asked_for_again_before_its_bytes_would_be_late() -> None:
    """Of bodies that take from 0.5 to 1.5 s, the whole answer lags after 2 s: its first byte does after 50 ms."""
    store = MadeStore(lambda at: 2.0 if at == 300 else 0.02, body_s=lambda at: 0.5 + at % 11 / 10)
    (found, runner), _ = run_virtually(run(store, requests(400), streams=8))
    assert found == [content(each.object, each.start, each.stop) for each in requests(400)]
    assert (runner.counts.hedges, runner.counts.hedges_won) == (1, 1)
    (lagging, *same) = store.seen[300][2:]
    times = [time_s for time_s, _, *place in store.seen if place == [lagging, *same]]
    assert times[1] - times[0] == pytest.approx(0.05)


def test_an_answer_that_stops_in_the_middle_is_asked_for_again() -> None:
    store = MadeStore(lambda _: 0.02, body_s=lambda at: 50.0 if at == 300 else 0.1)
    (found, runner), took_s = run_virtually(run(store, requests(400), streams=8))
    assert found == [content(each.object, each.start, each.stop) for each in requests(400)]
    assert (runner.counts.hedges, runner.counts.hedges_won) == (1, 1)
    assert took_s < 400 / 8 * 0.12 + 0.5


def test_latency_is_the_time_to_the_first_byte() -> None:
    _, runner = run_virtually(run(MadeStore(lambda _: 0.02, body_s=lambda _: 3.0), requests(40)))[0]
    assert runner.link.latency_s(0.5) == pytest.approx(0.02)


def test_second_requests_are_a_small_share_even_where_all_lag() -> None:
    store = MadeStore(lambda at: 0.02 if at < 100 else 2.0)
    (_, runner), _ = run_virtually(run(store, requests(500), streams=8))
    assert 2 <= runner.counts.hedges <= 2 + 0.05 * 500


def test_a_second_request_may_lag_too() -> None:
    slow = {300}

    def answer_s(at: int) -> float:
        return 2.0 if at in slow else 0.02

    for hedges in (1, 2):
        store = MadeStore(answer_s)
        (found, runner), took_s = run_virtually(run(store, requests(600), streams=8))
        assert found == [content(each.object, each.start, each.stop) for each in requests(600)]
        assert (runner.counts.hedges, runner.counts.hedges_won) == (hedges, 1)
        assert took_s < 600 / 8 * 0.02 + 0.3
        slow |= {at for at, seen in enumerate(store.seen) if seen[2:] == store.seen[300][2:]}


def test_where_all_wait_alike_nothing_is_sent_twice() -> None:
    """A link that becomes ten times slower makes each answer late, and none later than those sent after it."""
    store = MadeStore(lambda at: 0.02 if at < 200 else 0.2 + at % 8 / 100)
    (_, runner), _ = run_virtually(run(store, requests(400), streams=16))
    assert runner.counts.hedges <= 4  # of the last ones, which none is sent after; by time alone they would be 14


def test_an_answer_is_behind_once_later_ones_overtook_it_or_none_is_left() -> None:
    order = Overtaking()
    first, *later = (order.begin() for _ in range(10))
    for number in later[:7]:
        order.reached(number)
    assert not order.is_behind(first)
    order.reached(later[7])
    assert order.is_behind(first)
    assert order.is_behind(later[8]), "none that is later is still on its way"
    order.begin()
    assert not order.is_behind(later[8])


def test_a_late_request_waits_for_the_budget_that_others_used_up() -> None:
    """A burst of late answers takes all second requests that are allowed; one that comes after it gets its own."""
    store = MadeStore(lambda at: 0.5 if 100 <= at < 116 else 5.0 if at == 125 else 0.02)
    (_, runner), took_s = run_virtually(run(store, requests(600), streams=8))
    assert runner.counts.hedges <= 2 + 0.05 * 600
    assert took_s < 3.5


def test_the_loser_of_two_answers_is_let_go_of() -> None:
    store = MadeStore(lambda at: 2.0 if at == 100 else 0.02)
    run_virtually(run(store, requests(200), streams=4))
    assert store.under_way == 0


def test_a_store_that_asks_for_fewer_requests_gets_fewer() -> None:
    def answer(at: int) -> Any:
        return (0.01, FailedRequestError(FailureKind.PASSING, "503 SlowDown")) if 50 <= at < 80 else 0.01

    store = MadeStore(answer)
    (found, runner), _ = run_virtually(run(store, requests(300), streams=32))
    assert found == [content(each.object, each.start, each.stop) for each in requests(300)]
    assert runner.counts.throttled == 30
    after = [time_s for time_s, *_ in store.seen[80:120]]
    assert after == sorted(after)
    begun = {round(time_s, 2): 0 for time_s in after}
    for time_s in after:
        begun[round(time_s, 2)] += 1
    assert max(begun.values()) <= 20  # never all 32 at once again so soon


@pytest.mark.long
def test_long_latency_gets_more_streams_and_large_requests_do_not() -> None:
    def most(size: int, latency_s: float) -> int:
        sizes = [size + number % 2 * 3 * size for number in range(600)]
        wanted = [Request(0, 0, each, number) for number, each in enumerate(sizes)]
        store = MadeStore(lambda _: latency_s, body_s=lambda at: sizes[at] / 2e6)
        run_virtually(run(store, wanted, streams=8, most_streams=40))
        return store.most_under_way

    assert most(1_000, 1.0) == 40
    assert most(1_000, 0.0001) == 8
    assert most(40_000, 0.01) == 8


def test_a_store_that_refuses_more_streams_keeps_few() -> None:
    refused = FailedRequestError(FailureKind.PASSING, "503 SlowDown")
    store = MadeStore(lambda _: (1.0, refused) if store.under_way >= 20 else 1.0)
    (found, runner), _ = run_virtually(run(store, requests(800), streams=8, most_streams=64))
    assert found == [content(each.object, each.start, each.stop) for each in requests(800)]
    assert 0 < runner.counts.throttled < 200
    assert max(len([1 for begun, *_ in store.seen[-100:] if begun == at]) for at, *_ in store.seen[-100:]) <= 20


def test_what_is_cancelled_ends_and_leaves_nothing_under_way() -> None:
    async def work(store: MadeStore) -> list[Any]:
        runner = RequestRunner(store)
        answers = [runner.start(each) for each in requests(50)]
        await asyncio.sleep(0.5)
        runner.cancel()
        return await asyncio.gather(*answers, return_exceptions=True)

    store = MadeStore(lambda _: 10.0)
    found, _ = run_virtually(work(store))
    assert all(isinstance(each, asyncio.CancelledError) for each in found)
    assert store.under_way == 0


# --- in a thread ---


def test_a_part_of_several_requests_is_one_piece_of_memory() -> None:
    thread = RequestEngine(MadeStore(lambda _: 0.0))
    try:
        several = thread.fetch([Request(3, 10, 20, 0), Request(3, 20, 35, 0)])
        assert bytes(several.result(10)) == content(3, 10, 35)
        assert bytes(thread.fetch([Request(1, 5, 6, 0)]).result(10)) == content(1, 5, 6)
        assert bytes(thread.fetch([Request(1, 5, 5, 0)]).result(10)) == b""
        counts, latency_s = thread.counts()
        assert (counts.requests, counts.bytes) == (3, 26)
        assert set(latency_s) == {0.5, 0.95, 0.99}
    finally:
        thread.close()


def test_a_closed_thread_lets_go_of_what_waits_and_is_gone() -> None:
    store = MadeStore(lambda _: 100.0)
    thread = RequestEngine(store, streams=2)
    waiting = [thread.fetch([each]) for each in requests(5)]
    thread.model()  # the thread has heard of them
    thread.close()
    assert all(each.cancelled() for each in waiting)
    assert "headrace-fetch" not in {each.name for each in threading.enumerate()}
    with pytest.raises(HeadraceError, match="the fetching thread has ended"):
        thread.fetch(requests(1))
    assert thread.counts()[0].bytes == 0  # counts can still be asked for
    thread.close()


def test_a_failure_reaches_who_waits_for_the_part() -> None:
    thread = RequestEngine(
        MadeStore(lambda at: (0.0, FailedRequestError(FailureKind.MISSING, "gone")) if at == 1 else 0.0)
    )
    try:
        with pytest.raises(ReadError, match="gone"):
            thread.fetch([Request(0, 0, 5, 0), Request(0, 5, 9, 0)]).result(10)
    finally:
        thread.close()


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.AbstractEventLoop]:
    """Loops that threads have made."""
    made: list[asyncio.AbstractEventLoop] = []

    class KnownLoop(request_engine._ThreadLoop):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(request_engine, "_ThreadLoop", KnownLoop)
    return made


def test_a_thread_that_cannot_be_started_leaves_no_loop_open(
    monkeypatch: pytest.MonkeyPatch, loops: list[asyncio.AbstractEventLoop]
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        RequestEngine(MadeStore(lambda _: 0.0))
    assert [loop.is_closed() for loop in loops] == [True]


def test_a_thread_interrupted_as_it_starts_ends(
    monkeypatch: pytest.MonkeyPatch, loops: list[asyncio.AbstractEventLoop]
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RequestEngine(MadeStore(lambda _: 0.0))
    assert eventually(lambda: all(loop.is_closed() for loop in loops))


class Reluctant(MadeStore):
    """Store whose requests end only some turns of the loop after they were cancelled, and once the test lets them."""

    def __init__(self) -> None:
        super().__init__(lambda _: 1000.0)
        self.was_cancelled, self.may_end = threading.Event(), threading.Event()

    async def read_range(self, number: int, start: int, stop: int, begun: Callable[[], None]) -> bytes:
        try:
            return await super().read_range(number, start, stop, begun)
        finally:
            self.was_cancelled.set()
            while not self.may_end.is_set():
                await asyncio.sleep(0.001)


def test_a_thread_closed_by_several_at_once_ends_whole(loops: list[asyncio.AbstractEventLoop]) -> None:
    """As by the pass's owner and by its own thread: the later ones stopped the loop as it let go of requests."""
    store = Reluctant()
    thread = RequestEngine(store)
    waiting = thread.fetch(requests(1))
    assert eventually(lambda: len(store.seen) == 1)
    first, second = (threading.Thread(target=thread.close) for _ in range(2))
    first.start()
    assert store.was_cancelled.wait(DEADLINE_S)
    second.start()
    asked = threading.Thread(target=thread.counts)  # the loop has no turn for it any more
    asked.start()
    for _ in range(3):
        thread._end()
    store.may_end.set()
    for each in (first, second, asked):
        each.join(DEADLINE_S)
        assert not each.is_alive()
    assert waiting.cancelled()
    assert [loop.is_closed() for loop in loops] == [True]


def test_a_fork_has_no_loop_and_leaves_that_of_the_thread_alone(loops: list[asyncio.AbstractEventLoop]) -> None:
    store = MadeStore(lambda at: 1000.0 if at == 0 else 0.0)
    busy, idle = RequestEngine(store), RequestEngine(store)
    busy.fetch(requests(1))
    assert eventually(lambda: len(store.seen) == 1)

    def in_child() -> bytes:
        are_closed = [loop.is_closed() for loop in loops]
        busy.close()
        return f"{are_closed} {busy.counts()[0].requests}".encode()

    try:
        assert in_fork(in_child)() == b"[True, True] 1"
        # No timer of its own wakes this loop: only the descriptor that it watches.
        assert bytes(idle.fetch([Request(1, 5, 6, 0)]).result(DEADLINE_S)) == content(1, 5, 6)
    finally:
        busy.close()
        idle.close()


@pytest.mark.parametrize(("ranks", "streams"), [(1, (32, 128)), (2, (32, 128)), (8, (8, 32)), (512, (1, 1))])
def test_the_ranks_of_a_node_share_its_requests(
    monkeypatch: pytest.MonkeyPatch, ranks: int, streams: tuple[int, int]
) -> None:
    assert streams_of_rank(ranks) == streams
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    store = MadeStore(lambda _: 1000.0)
    engine = RequestEngine(store)
    try:
        engine.fetch([Request(1, at, at + 1, 0) for at in range(200)])
        assert eventually(lambda: len(store.seen) == streams[0])
        assert engine.model().streams == streams[0]
    finally:
        engine.close()
