"""The battery through `DevicePrefetcher`: what was prefetched is neither lost nor repeated, whatever the depth."""

from __future__ import annotations

import battery
import pytest
import torch
from loader_data import write_folder
from processes import eventually
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

import headrace as hr
from headrace.device import DevicePrefetcher

GLOBAL_BATCH = 12
VIEW = hr.RandomResizedCrop(24, flip=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("state") / "photos"))


@pytest.fixture(params=[1, 3], ids=["depth 1", "depth 3"])
def make(request, folder):
    def make(**overrides):
        given = {"view": VIEW, "batch_size": GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2}
        loader = hr.Loader(folder, **(given | overrides))
        return DevicePrefetcher(loader, "cpu", depth=request.param, normalize=hr.IMAGENET)

    return make


def test_no_thread_count_changes_a_bit(make):
    battery.check_threads(make)


def test_world_sizes(make):
    battery.check_world_sizes(make, GLOBAL_BATCH)


def test_resume_at_every_step(make):
    battery.check_resume_at_every_step(make)


def test_resume_twice(make):
    battery.check_resume_twice(make)


def test_restored_state_is_the_same(make):
    battery.check_restored_state_is_the_same(make)


@pytest.mark.long
def test_resume_on_other_world_sizes(make):
    battery.check_resume_on_other_world_sizes(make, GLOBAL_BATCH)


def test_states_are_those_of_the_loader_alone(make):
    """A run may gain or lose its prefetcher between two checkpoints."""
    for taken in range(len(make()) + 1):
        assert battery.state_after(make(), taken) == battery.state_after(make().source, taken)


def test_who_breaks_off_goes_on_from_there(make):
    expected = battery.kept(make())
    loader = make()
    got = battery.take(loader, 2)
    assert loader.state_dict() == battery.state_after(make(), 2)
    battery.assert_equal(got + battery.kept(loader), expected, "two passes")


def test_a_pass_of_just_its_length_is_a_whole_one(make):
    """`for step in range(len(loader)): next(iterator)` never sees the end, and the next epoch follows all the same."""
    expected = battery.epochs(make())
    loader = make()
    got = [batch for _ in range(2) for batch in battery.take(loader, len(loader))]
    battery.assert_equal(got, expected, "two epochs")


def test_a_pass_that_is_closed_from_outside_has_not_ended(make):
    """Also where the source had run out by then: what was not taken comes in the next pass."""
    loader = make(batch_size=GLOBAL_BATCH * 2)  # two batches
    expected = battery.kept(make(batch_size=GLOBAL_BATCH * 2))
    iterator = iter(loader)
    got = battery.kept([next(iterator)])
    assert eventually(lambda: loader._position.ended or loader._depth < len(loader))
    loader.close()
    assert list(iterator) == []
    battery.assert_equal(got + battery.kept(loader), expected, "two passes")


def test_set_epoch_after_a_pass_that_was_broken_off(make):
    fresh, broken_off = make(), make()
    battery.take(broken_off, 2)
    for loader in (fresh, broken_off):
        loader.set_epoch(5)
    battery.assert_equal(battery.kept(broken_off), battery.kept(fresh), "epoch 5")


class Numbers(Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, index):
        return {"x": torch.tensor(index)}


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_stateful_loader(workers):
    """Somebody else's source with state: a resume goes on with the same batches."""

    def make(**_):
        torch.manual_seed(3)
        loader = StatefulDataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=workers)
        return DevicePrefetcher(loader, "cpu")

    expected = battery.kept(make())
    for taken in range(1, len(expected)):
        loader = make()
        battery.take(loader, taken)
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        battery.assert_equal(battery.kept(resumed), expected[taken:], f"resumed after {taken}")


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("depth", [1, 2])
def test_a_pass_of_just_its_length_over_torchdatas_stateful_loader(depth):
    """Its state after the last batch, but before the end, is that of an empty pass."""
    loader = DevicePrefetcher(StatefulDataLoader(Numbers(), batch_size=4), "cpu", depth=depth)
    for _ in range(3):
        iterator = iter(loader)
        assert [int(next(iterator)["x"][0]) for _ in range(len(loader))] == [0, 4, 8, 12, 16, 20]
        del iterator  # at once: the thread need not have asked for the end
