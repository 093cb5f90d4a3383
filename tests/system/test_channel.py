"""`channel.py`: order, bounds, both ends' last words, and who waited for whom. By events, without sleeping."""

from __future__ import annotations

import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import DEADLINE_S, eventually

from headrace.system.channel import Channel, Closed


@pytest.fixture
def threads():
    with ThreadPoolExecutor(4) as executor:
        yield executor


def filled(*items, capacity=4):
    channel = Channel(capacity)
    for item in items:
        assert channel.reserve(block=False)
        channel.put(item)
    return channel


def waits(channel):
    """Whether a thread has come to wait on the channel: the time it has waited grows."""
    statistics = channel.statistics()
    before = statistics.consumer_wait_s + statistics.producer_wait_s
    return eventually(lambda: channel.statistics().consumer_wait_s + channel.statistics().producer_wait_s > before)


def test_items_come_in_order(threads):
    channel = Channel(2)

    def produce():
        for item in range(1000):
            channel.reserve(block=True)
            channel.put(item)
        channel.finish()

    done = threads.submit(produce)
    assert [channel.take() for _ in range(1000)] == list(range(1000))
    with pytest.raises(Closed):
        channel.take()
    done.result(DEADLINE_S)


def test_what_is_promised_counts_before_it_is_there():
    channel = Channel(2)
    assert channel.reserve(block=False)
    assert channel.reserve(block=False)
    assert not channel.reserve(block=False)
    channel.put("first")
    assert not channel.reserve(block=False), "what waits to be taken has its place still"
    channel.take()
    assert channel.reserve(block=False)


def test_a_producer_waits_for_room(threads):
    channel = filled(1, capacity=1)
    reserved = threads.submit(channel.reserve, block=True)
    assert waits(channel)
    assert not reserved.done()
    assert channel.take() == 1
    assert reserved.result(DEADLINE_S)
    statistics = channel.statistics()
    assert statistics.producer_wait_s > 0
    assert statistics.consumer_wait_s == 0


def test_a_consumer_waits_for_an_item(threads):
    channel = Channel(1)
    taken = threads.submit(channel.take)
    assert waits(channel)
    channel.reserve(block=False)
    channel.put("late")
    assert taken.result(DEADLINE_S) == "late"
    statistics = channel.statistics()
    assert statistics.consumer_wait_s > 0
    assert statistics.producer_wait_s == 0
    assert (statistics.taken, statistics.waiting) == (1, 0)


def test_what_was_put_is_taken_after_the_end():
    channel = filled("a", "b")
    channel.finish()
    assert channel.statistics().waiting == 2
    assert [channel.take(), channel.take()] == ["a", "b"]
    for _ in range(2):
        with pytest.raises(Closed):
            channel.take()


def test_an_error_comes_after_what_was_put_and_once():
    channel = filled("a")
    channel.finish(ValueError("broken"))
    assert channel.take() == "a"
    with pytest.raises(ValueError, match="broken"):
        channel.take()
    with pytest.raises(Closed):
        channel.take()


def test_an_error_that_was_raised_is_let_go():
    class Batch:
        pass

    def fail(batch):
        raise ValueError("broken")

    channel, batch = Channel(1), Batch()
    gone = weakref.ref(batch)
    gc.disable()
    try:
        try:
            fail(batch)
        except ValueError as error:
            channel.finish(error)
        with pytest.raises(ValueError, match="broken"):
            channel.take()
        del batch
        assert gone() is None, "a cycle keeps what the failed call held until the collector runs"
    finally:
        gc.enable()


def test_closing_drops_what_waits_and_wakes_a_producer(threads):
    channel = filled("a", capacity=1)
    reserved = threads.submit(channel.reserve, block=True)
    assert waits(channel)
    channel.close()
    with pytest.raises(Closed):
        reserved.result(DEADLINE_S)
    with pytest.raises(Closed):
        channel.put("b")
    with pytest.raises(Closed):
        channel.take()


@pytest.mark.parametrize("end", ["close", "finish"])
def test_the_end_wakes_every_consumer(threads, end):
    channel = Channel(1)
    taken = [threads.submit(channel.take) for _ in range(3)]
    assert waits(channel)
    getattr(channel, end)()
    for one in taken:
        with pytest.raises(Closed):
            one.result(DEADLINE_S)


def test_closing_while_it_is_closed():
    """What is dropped may be the last that held something which closes the same channel."""
    channel = Channel(2)

    class Closes:
        def __del__(self):
            channel.close()

    channel.reserve(block=False)
    channel.put(Closes())
    channel.close()
    with pytest.raises(Closed):
        channel.take()


def test_what_comes_after_the_consumers_last_word_is_let_go():
    """A producer may have looked just before it: its item must not stay for as long as the channel does."""

    class Batch:
        pass

    channel, batch = Channel(1), Batch()
    gone = weakref.ref(batch)
    channel.close()
    channel._items.put(batch)
    del batch
    channel.finish()
    assert gone() is None
    with pytest.raises(Closed):
        channel.take()


def test_closing_lets_go_of_an_error_that_nobody_took():
    """Its traceback holds what the producer held, and a channel may outlive the pass for its statistics."""

    class FailureError(Exception):
        pass

    channel, error = filled("a"), FailureError()
    alive = weakref.ref(error)
    channel.finish(error)
    del error
    channel.close()
    gc.collect()
    assert alive() is None
    with pytest.raises(Closed):
        channel.take()


def reservations(channel, most=50):
    """Places that can be had at once."""
    return sum(channel.reserve(block=False) for _ in range(most))


def test_more_places_can_be_had_at_once(threads):
    channel = filled(1, capacity=1)
    reserved = threads.submit(channel.reserve, block=True)
    assert waits(channel)
    channel.set_capacity(4)
    assert reserved.result(DEADLINE_S)
    assert (channel.capacity, reservations(channel)) == (4, 2)


def test_fewer_places_take_nothing_that_was_promised():
    channel = filled("a", "b", capacity=5)
    channel.set_capacity(1)
    assert reservations(channel) == 0
    assert channel.take() == "a"
    assert reservations(channel) == 0, "one is still there, and one is all that may be"
    assert channel.take() == "b"
    assert reservations(channel) == 1


def test_a_place_that_is_given_back_may_be_one_too_many():
    channel = Channel(3)
    assert reservations(channel) == 3
    channel.set_capacity(2)
    channel.give_back()
    assert reservations(channel) == 0
    channel.give_back()
    assert reservations(channel) == 1


def test_owed_places_are_paid_by_growth_first():
    channel = Channel(3)
    assert reservations(channel) == 3
    channel.set_capacity(1)
    channel.set_capacity(4)
    assert reservations(channel) == 1


@pytest.mark.parametrize("seed", range(20))
def test_capacity_after_any_changes(seed):
    """As a count of places says: what is promised and not taken, and what can be had beside it, are the capacity, or
    no more than was promised before it fell."""
    draw, channel, under_way = random.Random(seed), Channel(3), 0
    for _ in range(200):
        match draw.randrange(4):
            case 0:
                channel.set_capacity(draw.randint(1, 8))
            case 1 if channel.reserve(block=False):
                assert under_way < channel.capacity
                channel.put(None)
                under_way += 1
            case 2 if under_way:
                channel.take()
                under_way -= 1
            case 3 if channel.reserve(block=False):
                channel.give_back()
    assert reservations(channel) == max(0, channel.capacity - under_way)


@pytest.mark.parametrize("end", ["close", "stop"])
def test_the_end_wakes_a_producer_whatever_the_capacity_becomes(threads, end):
    """A producer may have looked for the end just before it, and now waits for a place."""
    channel = filled("a", capacity=1)
    getattr(channel, end)()
    channel.set_capacity(9)
    channel.set_capacity(1)
    threads.submit(channel._places.get).result(DEADLINE_S)


def test_items_come_in_order_while_the_capacity_changes(threads):
    channel = Channel(1)

    def produce():
        for item in range(2000):
            channel.reserve(block=True)
            channel.put(item)
        channel.finish()

    def resize():
        draw = random.Random(0)
        while not done.done():
            channel.set_capacity(draw.randint(1, 6))
        channel.set_capacity(2)

    done = threads.submit(produce)
    resized = threads.submit(resize)
    assert [channel.take() for _ in range(2000)] == list(range(2000))
    done.result(DEADLINE_S)
    resized.result(DEADLINE_S)
    assert channel._places.qsize() >= 2
