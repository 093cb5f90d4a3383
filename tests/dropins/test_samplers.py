"""Samplers under a tracked DataLoader: the battery, and what the training loop has whatever is prefetched."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import traceback
from inspect import signature

import battery
import pytest
import torch
from processes import finish, start_python
from sampler_loaders import (
    GLOBAL_BATCH,
    KINDS,
    LENGTH,
    Numbers,
    dealt,
    everywhere,
    factory,
    flat,
    loader_of,
    sampler_of,
    samples_of,
)
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import headrace as hr
from headrace.dropins.resumable_samplers import BucketBatchSampler, ResumableBatchSampler, ResumableSampler
from headrace.errors import HeadraceError, StateError, UsageError
from headrace.plan import UniformPlan

# Of torch, on machines with fewer cores than the battery has threads.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

both = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def ranks_joined(kind, monkeypatch):
    """The battery joins parts in rank order; single samples are dealt out in turn instead."""
    if kind == "samples":
        monkeypatch.setattr(battery, "joined", dealt)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long if kind == "windows" else ()) for kind in KINDS]
)
@pytest.mark.long
def test_any_number_of_workers_gives_the_same_batches(kind):
    battery.check_threads(factory(kind))


@everywhere
@pytest.mark.one_in(3)
def test_resume_at_every_step(kind, workers):
    battery.check_resume_at_every_step(factory(kind, workers))


@pytest.mark.long
def test_resume_with_another_number_of_workers():
    battery.check_resume_at_every_step(factory("batches", "workers"), threads=1)


@everywhere
@pytest.mark.one_in(3)
def test_resume_twice(kind, workers):
    battery.check_resume_twice(factory(kind, workers))


@everywhere
@pytest.mark.one_in(3)
def test_restored_state(kind, workers):
    battery.check_restored_state_is_the_same(factory(kind, workers))


@both
@pytest.mark.usefixtures("ranks_joined")
def test_world_sizes(kind):
    battery.check_world_sizes(factory(kind), GLOBAL_BATCH)


@pytest.mark.one_in(2)
@both
@pytest.mark.usefixtures("ranks_joined")
def test_resume_on_other_world_sizes(kind):
    battery.check_resume_on_other_world_sizes(factory(kind), GLOBAL_BATCH)


@both
@pytest.mark.long
@pytest.mark.usefixtures("ranks_joined")
def test_resume_on_other_world_sizes_with_workers(kind):
    battery.check_resume_on_other_world_sizes(factory(kind, "workers"), GLOBAL_BATCH)


def test_resume_on_another_world_size_with_workers():
    """The short cut of the one before."""
    make = factory("batches", "workers")
    expected = battery.kept(make())
    states = [battery.state_after(loader, 1) for loader in battery.loaders_of(make, GLOBAL_BATCH, 2)]
    assert states[0] == states[1]
    resumed = battery.loaders_of(make, GLOBAL_BATCH, 4)
    for loader in resumed:
        loader.load_state_dict(states[0])
    parts = zip(*[battery.kept(loader) for loader in resumed], strict=True)
    battery.assert_equal([battery.joined(part) for part in parts], expected[1:], "saved on 2, resumed on 4")


@both
@pytest.mark.parametrize("remainder", ["drop", "wrap"])
def test_other_remainders(kind, remainder):
    make = factory(kind, remainder=remainder)
    battery.check_resume_at_every_step(make)
    battery.check_resume_twice(make)
    battery.check_restored_state_is_the_same(make)


@both
def test_every_sample_comes_once_in_an_epoch_over_all_ranks(kind):
    for world_size in battery.WORLD_SIZES:
        loaders = battery.loaders_of(factory(kind), GLOBAL_BATCH, world_size)
        samples = flat(flat(samples_of(loader) for loader in loaders))
        assert sorted(samples) == list(range(LENGTH))


def test_windows_are_those_of_the_loader(tmp_path):
    data = hr.open({"label": list(range(LENGTH))})
    order = hr.Windowed(block_samples=3, window_blocks=4, lanes=4)
    loader = hr.Loader(data, {"label": hr.Label()}, batch_size=12, shuffle=True, seed=5, order=order, output="numpy")
    assert [batch["label"].tolist() for batch in loader] == list(sampler_of("windows"))
    with pytest.raises(UsageError, match=r"order: expected shuffle=True with a windowed order"):
        ResumableBatchSampler(LENGTH, 12, shuffle=False, order="windowed")
    with pytest.raises(UsageError, match=r"Windowed with block_samples=, since the bytes .* got block_bytes=9000000"):
        ResumableBatchSampler(LENGTH, 12, order=hr.Windowed(block_bytes=9_000_000))


def test_batches_are_the_plans():
    plan = UniformPlan(length=LENGTH, batch_size=6, world_size=2, rank=1, seed=5)
    sampler = sampler_of("batches", batch_size=6, world_size=2, rank=1)
    for epoch in range(2):
        assert list(sampler) == [plan.batch(epoch, step).samples.tolist() for step in range(plan.steps)]


def test_single_samples_are_the_plans_order_dealt_out_in_turn():
    order = UniformPlan(length=2500, batch_size=2500, seed=5).batch(0, 0).samples.tolist()
    for rank in range(3):
        sampler = ResumableSampler(2500, seed=5, rank=rank, world_size=3)
        assert list(sampler) == (order + order)[rank:2502:3]
        assert (len(sampler), sampler.repeated, sampler.left_out) == (834, 2, 0)
    dropped = ResumableSampler(2500, seed=5, remainder="drop", rank=2, world_size=3)
    assert list(dropped) == order[2:2499:3]
    assert (len(dropped), dropped.repeated, dropped.left_out) == (833, 0, 1)


def test_the_dataset_stands_for_its_length():
    assert list(ResumableBatchSampler(Numbers(), 12, seed=5)) == list(sampler_of("batches"))
    assert list(ResumableSampler(Numbers(), seed=5)) == list(sampler_of("samples"))


def test_unshuffled_samples_come_in_order():
    assert list(ResumableSampler(7, shuffle=False)) == list(range(7))
    assert list(ResumableBatchSampler(7, 3, shuffle=False)) == [[0, 1, 2], [3, 4, 5], [6]]


# --- a position in the epoch ---


@everywhere
def test_the_state_counts_what_the_loop_has_while_workers_run_ahead(kind, workers):
    loader = factory(kind, workers)()
    for received, _ in enumerate(loader, 1):
        state = loader.state_dict()
        last = received == len(loader)
        assert (state["epoch"], state["samples"]) == ((1, 0) if last else (0, received * GLOBAL_BATCH))
    assert len(json.dumps(state)) < 400


@pytest.mark.one_in(2)
@everywhere
def test_abandoned_passes(kind, workers):
    battery.check_abandoned_passes(factory(kind, workers))


@both
def test_epochs_and_seeds_give_other_orders(kind):
    orders = {tuple(flat(samples_of(epoch))) for epoch in battery_epochs(factory(kind)(), 3)}
    orders |= {tuple(flat(samples_of(factory(kind)(seed=6))))}
    assert len(orders) == 4


def battery_epochs(loader, count):
    return [list(loader) for _ in range(count)]


def test_single_samples_resume_at_another_batch_size():
    order = list(sampler_of("samples"))
    saved = sampler_of("samples")
    loader = saved.track(loader_of(saved, batch_size=7))
    battery.take(loader, 3)
    assert loader.state_dict()["samples"] == 21
    ranks = [sampler_of("samples", rank=rank, world_size=3) for rank in range(3)]
    parts = []
    for sampler in ranks:
        sampler.load_state_dict(loader.state_dict())
        parts.append(list(sampler))
    assert flat(zip(*parts, strict=True))[: LENGTH - 21] == order[21:]


def test_a_last_batch_that_the_loader_drops_ends_the_epoch():
    sampler = sampler_of("samples")
    loader = sampler.track(loader_of(sampler, batch_size=9, drop_last=True))
    assert len(battery.take(loader, 4)) == len(loader) == 4
    assert (loader.state_dict()["epoch"], loader.state_dict()["samples"]) == (1, 0)


def test_a_rest_smaller_than_a_dropped_last_batch_is_no_batch():
    sampler = sampler_of("samples")
    loader = sampler.track(loader_of(sampler, batch_size=9, drop_last=True))
    saved = sampler_of("samples")
    battery.take(tracked := saved.track(loader_of(saved, batch_size=3)), 12)
    loader.load_state_dict(tracked.state_dict())
    assert list(loader) == []
    assert loader.epoch == 1


def test_a_dataset_that_takes_lists_of_indices():
    class Lists(Numbers):
        def __getitem__(self, indices):
            return {"sample": torch.tensor(indices)}

    sampler = sampler_of("batches")
    loader = sampler.track(DataLoader(Lists(), batch_size=None, sampler=sampler))
    assert samples_of(battery.take(loader, 2)) == list(sampler_of("batches"))[:2]
    assert loader.state_dict()["samples"] == 24


def test_a_batch_sampler_of_the_users_own_over_single_samples():
    sampler = sampler_of("samples")
    loader = sampler.track(DataLoader(Numbers(), batch_sampler=BatchSampler(sampler, 5, drop_last=False)))
    battery.take(loader, 2)
    assert loader.state_dict()["samples"] == 10


# --- nobody counts ---


@pytest.mark.one_in(3)
@both
@pytest.mark.parametrize("num_workers", [0, 2])
def test_without_a_count_there_is_no_state(kind, num_workers):
    sampler = sampler_of(kind)
    iterator = iter(loader_of(sampler, num_workers=num_workers))
    next(iterator)
    with pytest.raises(
        StateError, match=r"drawn \d+ of the \d+ steps of this pass over epoch 0, ahead of the loop; it"
    ):
        sampler.state_dict()
    for _ in iterator:
        pass
    with pytest.raises(
        StateError, match=r"iterate over sampler.track\(loader\), or count and pass state_dict\(received"
    ):
        sampler.state_dict()
    sampler.set_epoch(1)
    assert sampler.state_dict()["epoch"] == 1


@pytest.mark.one_in(6)
@both
def test_the_loops_own_count_does(kind):
    unit = GLOBAL_BATCH if kind == "samples" else 1
    expected = samples_of(battery.kept(factory(kind)()))
    sampler = sampler_of(kind)
    for received, _ in enumerate(loader_of(sampler, num_workers=2), 1):
        state = sampler.state_dict(received=min(received * unit, len(sampler)))
        resumed = sampler_of(kind)
        resumed.load_state_dict(state)
        if received < len(expected):
            assert samples_of(loader_of(resumed)) == expected[received:]
        else:
            assert state == resumed.state_dict() == {**state, "epoch": 1, "samples": 0}


def test_a_resumed_pass_is_counted_from_where_it_began():
    sampler = sampler_of("batches")
    sampler.load_state_dict(battery.state_after(factory("batches")(), 1))
    list(sampler)
    assert sampler.state_dict(received=0)["samples"] == 12
    assert sampler.state_dict(received=2)["samples"] == 36
    assert sampler.state_dict(received=3)["epoch"] == 1


@pytest.mark.parametrize("received", [-1, 3, True, 1.0])
def test_a_count_of_more_than_was_drawn_is_refused(received):
    sampler = sampler_of("batches")
    list(itertools.islice(sampler, 2))
    with pytest.raises(UsageError, match=r"received: expected an int from 0 to the 2 steps drawn in this pass, got"):
        sampler.state_dict(received=received)


@both
def test_iterating_the_loader_itself_after_tracking_it_is_noticed(kind):
    sampler = sampler_of(kind)
    raw = loader_of(sampler)
    loader = sampler.track(raw)
    battery.take(loader, 0)
    next(iter(raw))
    with pytest.raises(StateError, match="expected to know what the training loop has received"):
        loader.state_dict()


def test_batches_that_the_sampler_did_not_draw_are_noticed():
    class Stubborn(DataLoader):
        def __iter__(self):
            return iter(DataLoader(self.dataset, batch_size=12))

    sampler = sampler_of("batches")
    iterator = iter(sampler.track(loader_of(sampler, cls=Stubborn)))
    with pytest.raises(
        StateError, match=r"expected each batch to be drawn from the sampler .* got batch 1 when 0 steps"
    ):
        next(iterator)


# --- the tracked loader ---


@pytest.mark.one_in(2)
@everywhere
def test_one_pass_at_a_time(kind, workers):
    loader = factory(kind, workers)()
    following = [battery.kept(loader) for _ in range(2)][1]
    loader.set_epoch(0)
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(UsageError, match="another one over the same tracked loader has begun"):
        next(old)
    battery.assert_equal(battery.kept(new), following, "the new pass")
    assert loader.epoch == 2


def test_other_attributes_are_the_dataloaders():
    sampler = sampler_of("batches", batch_size=6, rank=1, world_size=2)
    raw = loader_of(sampler)
    loader = sampler.track(raw)
    assert (loader.dataset, loader.batch_sampler, loader.num_workers) == (raw.dataset, sampler, 0)
    assert (len(loader), loader.rank, loader.world_size, sampler.batch_size) == (4, 1, 2, 6)
    assert not hasattr(loader, "no_such_attribute")
    assert not hasattr(loader, "_iterator")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_ends_the_pass_before_the_batch_that_raised_it(num_workers):
    expected = samples_of(factory("batches")())
    sampler = sampler_of("batches")
    dataset = Numbers(fails_at=expected[2][4])
    loader = sampler.track(loader_of(sampler, dataset=dataset, num_workers=num_workers))
    iterator = iter(loader)
    assert samples_of([next(iterator), next(iterator)]) == expected[:2]
    with pytest.raises(ZeroDivisionError, match=f"sample {expected[2][4]}") as raised:
        next(iterator)
    # The exception and torch's frames hold each other and the DataLoader's iterator. When that is collected as a
    # cycle, its queues go before it, and it waits 5 s for each worker.
    traceback.clear_frames(raised.tb)
    assert list(iterator) == []
    assert rest_of(loader.state_dict()) == expected[2:]


def test_an_error_ends_the_workers_though_its_traceback_is_held():
    """Also where nothing lets go of torch's frames: killed workers would have its signal handler raise again later."""
    sampler = sampler_of("batches")
    dataset = Numbers(fails_at=next(iter(sampler_of("batches")))[0])
    loader = sampler.track(loader_of(sampler, dataset=dataset, num_workers=2))
    with pytest.raises(ZeroDivisionError) as raised:
        next(iter(loader))
    assert multiprocessing.active_children() == []
    assert raised.tb is not None


def test_a_worker_that_dies_while_it_sends_a_batch_is_named():
    """torch may let out a bare ConnectionResetError, which says nothing."""
    sampler = sampler_of("batches")
    loader = sampler.track(loader_of(sampler))
    iterator = iter(loader)
    worker = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    worker.start()

    class Broken:
        _workers = (worker,)
        _persistent_workers = True

        def __next__(self):
            raise ConnectionResetError

    iterator._iterator = Broken()
    with pytest.raises(RuntimeError, match="exited unexpectedly with code 3 while it sent a batch"):
        next(iterator)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_an_error_and_the_state_after_it_resumes_at_its_batch(persistent):
    expected = samples_of(factory("batches")())
    sampler = sampler_of("batches")
    dataset = Numbers(dies_at=expected[2][0])
    loader = sampler.track(
        loader_of(sampler, dataset=dataset, num_workers=2, prefetch_factor=1, persistent_workers=persistent)
    )
    got = []
    with pytest.raises(
        RuntimeError, match=r"DataLoader worker \(pid.* \d+\)? (is killed by signal|exited unexpectedly)"
    ):
        got.extend(samples_of([batch]) for batch in loader)
    assert rest_of(loader.state_dict()) == expected[len(got) :]
    assert len(got) <= 2


def rest_of(state):
    loader = factory("batches")()
    loader.load_state_dict(state)
    return samples_of(loader)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda sampler: DataLoader(Numbers(), batch_size=4),
            "this ResumableBatchSampler, got one that draws from Batch",
        ),
        (lambda sampler: DataLoader(Numbers(), batch_size=None), "got one that draws from SequentialSampler"),
        (
            lambda sampler: DataLoader(Numbers(), batch_sampler=BatchSampler(SequentialSampler(range(40)), 4, False)),
            "expected a DataLoader with batch_sampler= or sampler= this",
        ),
        pytest.param(
            lambda sampler: loader_of(sampler, num_workers=2, in_order=False),
            "got in_order=False: a count of batches",
            marks=pytest.mark.skipif("in_order" not in signature(DataLoader).parameters, reason="in order only"),
        ),
    ],
)
def test_a_loader_that_cannot_be_tracked_is_refused(make, says):
    sampler = sampler_of("batches")
    with pytest.raises(UsageError, match=says):
        sampler.track(make(sampler))


# --- ranks ---


@pytest.mark.parametrize("remainder", ["short", "wrap", "drop"])
@pytest.mark.parametrize("length", [9, 11, 13, 16])
def test_no_rank_has_an_empty_batch_and_what_comes_again_is_counted(length, remainder):
    ranks = [
        ResumableBatchSampler(length, 2, remainder=remainder, seed=5, rank=rank, world_size=4) for rank in range(4)
    ]
    lists = [list(sampler) for sampler in ranks]
    assert len({len(part) for part in lists}) == 1
    assert all(flat(lists))
    samples = flat(flat(lists))
    assert len(samples) == length + ranks[0].repeated - ranks[0].left_out
    if remainder == "short":
        assert set(samples) == set(range(length))


def test_rank_and_world_size_come_from_torchruns_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(ResumableBatchSampler(40, 6, seed=5)) == list(sampler_of("batches", batch_size=6, rank=1, world_size=2))
    sampler = ResumableSampler(40)
    assert (sampler.rank, sampler.world_size) == (1, 2)


@pytest.fixture
def process_group(monkeypatch):
    """Begins when called, as rank 2 of 3."""

    def begin():
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)

    return begin


@both
def test_a_process_group_is_asked_before_the_environment_and_arguments_before_both(kind, process_group, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    process_group()
    assert (sampler_of(kind).rank, sampler_of(kind).world_size) == (2, 3)
    given = sampler_of(kind, rank=1, world_size=4)
    assert (given.rank, given.world_size) == (1, 4)


def test_a_torch_without_distributed_is_not_asked(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    assert (sampler_of("batches").rank, sampler_of("batches").world_size) == (0, 1)


@both
def test_a_process_group_that_begins_after_the_sampler_was_made_is_noticed(kind, process_group):
    made_before, given = sampler_of(kind), sampler_of(kind, rank=0, world_size=2)
    process_group()
    with pytest.raises(
        UsageError, match=r"rank 0 of 1 as when it was made .*, got rank 2 of 3 .* after init_process_group"
    ):
        iter(made_before)
    assert len(list(given)) == len(given)


@pytest.mark.long
def test_ranks_of_a_real_process_group_share_the_epoch(tmp_path):
    """Without torchrun's variables, as under mp.spawn; test_a_process_group_is_asked… is its short cut."""
    source = """
        import sys, torch.distributed as dist
        from headrace.dropins.resumable_samplers import BucketBatchSampler
        dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
        sampler = BucketBatchSampler("a" * 9 + "b" * 7, 2, seed=3)
        print(sampler.rank, sampler.world_size, list(sampler))
        dist.destroy_process_group()
    """
    processes = [start_python(source, tmp_path / "store", rank, warnings="default") for rank in range(2)]
    for rank, process in enumerate(processes):
        code, out, error = finish(process)
        expected = BucketBatchSampler("a" * 9 + "b" * 7, 2, seed=3, rank=rank, world_size=2)
        assert (code, out.strip()) == (0, f"{rank} 2 {list(expected)}"), error


# --- what is refused ---


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("samples", {"remainder": "short"}, "remainder: expected 'drop' or 'wrap', which give every rank equally many"),
        ("samples", {"length": 0}, "length: expected an int from 1 .* holds no sample"),
        ("samples", {"length": 2, "world_size": 3, "rank": 0, "remainder": "drop"}, "remainder='drop' leaves nothing"),
        ("batches", {"batch_size": 0}, "batch_size: expected an int from 1"),
        ("batches", {"rank": 2, "world_size": 2}, "rank: expected an int from 0 to 1"),
        ("batches", {"rank": 1}, "expected rank and world_size together"),
        ("batches", {"seed": -1}, "seed: expected"),
    ],
)
def test_a_wrong_argument_is_named(kind, change, says):
    with pytest.raises(UsageError, match=says):
        sampler_of(kind, **change)


@pytest.mark.parametrize("epoch", [-1, True, 1.0])
def test_set_epoch_refuses_what_is_no_epoch(epoch):
    with pytest.raises(UsageError, match="set_epoch: expected an int of at least 0"):
        sampler_of("batches").set_epoch(epoch)


@pytest.mark.parametrize(
    ("saved", "here", "says"),
    [
        (("batches", {}), ("batches", {"seed": 6}), "pass seed=5"),
        (("batches", {}), ("batches", {"batch_size": 6}), "pass batch_size=12"),
        (
            ("batches", {}),
            ("batches", {"length": 41}),
            "expected samples in an epoch 41 as in this loader, got 40",
        ),
        (("batches", {}), ("batches", {"remainder": "drop"}), "pass remainder='short'"),
        (("batches", {"remainder": "wrap"}), ("samples", {}), "single samples .* got global batch 12; load it into a"),
        (("samples", {}), ("samples", {"shuffle": False}), "pass shuffle=True"),
        (
            ("batches", {}),
            ("buckets", {}),
            r"expected dataset 'buckets [0-9a-f]{16}' as in this loader, got '40 samples'",
        ),
    ],
)
def test_a_state_of_another_sampler_is_refused(saved, here, says):
    state = sampler_of(saved[0], **saved[1]).state_dict()
    with pytest.raises(HeadraceError, match=says):
        sampler_of(here[0], **here[1]).load_state_dict(state)


def test_a_position_beyond_the_epoch_is_refused():
    state = sampler_of("samples").state_dict()
    with pytest.raises(StateError, match=r"state\['samples'\]: expected at most the 40 samples of an epoch, got 41"):
        sampler_of("samples").load_state_dict({**state, "samples": 41})
    state = sampler_of("batches").state_dict()
    with pytest.raises(StateError, match="below 60, got 60"):
        sampler_of("batches").load_state_dict({**state, "samples": 60})
