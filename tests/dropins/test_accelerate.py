"""`accelerator.prepare`: batches, epochs and the place in them are the loader's, in one process."""

from __future__ import annotations

import os
from functools import partial

import battery
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DataLoaderConfiguration
from framework_data import MAKERS, STEPS, assert_not_copied, loader_only, run_recipe, state_at, threads_only, watched
from processes import own_threads

from headrace.tools.bench.runs import tree

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata, of torch


@pytest.fixture(scope="module", params=MAKERS)
def make(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp("accelerate"))


@pytest.fixture(scope="module")
def expected(make):
    """The first four epochs."""
    return battery.epochs(make(), 4)


@pytest.fixture(autouse=True)
def forget_accelerators():
    """Accelerate keeps its settings for the whole process."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def accelerator(**settings):
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**settings))


class Prepared:
    """A prepared loader with the state that `accelerator.register_for_checkpointing` saves, as the battery takes it."""

    def __init__(self, loader):
        dataloader = loader.as_dataloader()
        self.prepared = accelerator().prepare(dataloader)
        self.state_dict, self.load_state_dict = dataloader.state_dict, dataloader.load_state_dict

    def __iter__(self):
        return iter(self.prepared)

    def __len__(self):
        return len(self.prepared)


@pytest.fixture(scope="module")
def make_prepared(make):
    return lambda **overrides: Prepared(make(**overrides))


@pytest.mark.one_in(2)
def test_resume_at_every_step(make_prepared):
    battery.check_resume_at_every_step(make_prepared)


@pytest.mark.one_in(2)
def test_resume_twice(make_prepared):
    battery.check_resume_twice(make_prepared)


def test_restored_state(make_prepared):
    battery.check_restored_state_is_the_same(make_prepared)


def test_gives_the_loaders_batches(make, expected):
    battery.assert_equal(battery.epochs(accelerator().prepare(make().as_dataloader()), 4), expected, "four epochs")


@pytest.mark.parametrize("kind", MAKERS)
def test_copies_nothing(tmp_path, kind):
    loader = watched(kind, tmp_path)
    assert_not_copied(list(accelerator().prepare(loader.as_dataloader())), loader)


@loader_only
def test_a_bare_loader_is_left_alone(make):
    """So nothing is moved to the device, and the end of the epoch is not known to gradient accumulation."""
    loader = make()
    assert accelerator().prepare(loader) is loader


@threads_only
def test_bare_threads_would_become_processes(make):
    """Accelerate makes a plain DataLoader of any DataLoader's parts, but not of what as_dataloader gives."""
    loader = make()
    assert accelerator().prepare(loader).num_workers == loader.num_workers > 0
    prepared = accelerator().prepare(loader.as_dataloader())
    assert prepared.num_workers == 0
    started, processes = own_threads(), tree(os.getpid())
    iterator = iter(prepared)
    next(iterator)
    assert (started, tree(os.getpid())) == ([], processes)
    assert own_threads() != []
    iterator.close()


def test_state_in_the_loop_is_the_consumers_not_that_of_the_batch_fetched_ahead(make):
    dataloader = make().as_dataloader()
    for received, _ in enumerate(accelerator().prepare(dataloader), 1):
        epoch, step = divmod(received, STEPS)
        assert dataloader.state_dict() == state_at(make, epoch, step)
    assert dataloader.state_dict() == state_at(make, 1, 0)


def test_state_in_a_loop_over_something_else_in_the_loop(make):
    """Evaluation in mid-epoch, and a checkpoint from there."""
    acc = accelerator()
    train, test = make().as_dataloader(), make(shuffle=False).as_dataloader()
    batches, tests = acc.prepare(train, test)
    iterator = iter(batches)
    next(iterator), next(iterator)
    for taken, _ in enumerate(tests, 1):
        assert train.state_dict() == state_at(make, 0, 2)
        assert test.state_dict() == state_at(partial(make, shuffle=False), taken // STEPS, taken % STEPS)
    next(iterator)
    assert train.state_dict() == state_at(make, 0, 3)


def test_state_after_a_break_is_what_was_received(make, expected):
    dataloader = make().as_dataloader()
    batches = accelerator().prepare(dataloader)
    for received, _ in enumerate(batches, 1):
        if received == 3:
            break
    assert own_threads() == []
    assert dataloader.state_dict() == state_at(make, 0, 3)
    dataloader.load_state_dict(state_at(make, 1, 2))
    assert dataloader.state_dict() == state_at(make, 1, 2)
    battery.assert_equal(battery.kept(batches), expected[STEPS + 2 : 2 * STEPS], "elsewhere")


def test_registered_for_checkpointing(make, expected, tmp_path):
    for taken in (2, STEPS):
        acc = accelerator()
        dataloader = make().as_dataloader()
        batches = acc.prepare(dataloader)
        acc.register_for_checkpointing(dataloader)
        battery.kept(batches)
        for received, _ in enumerate(batches, 1):
            if received == taken:
                acc.save_state(str(tmp_path / f"{taken}"))
                break
        acc = accelerator()
        loader = make()
        dataloader = loader.as_dataloader()
        batches = acc.prepare(dataloader)
        acc.register_for_checkpointing(dataloader)
        acc.load_state(str(tmp_path / f"{taken}"))
        assert loader.epoch == (1 if taken < STEPS else 2)
        rest = [batch for _ in range(loader.epoch, 4) for batch in battery.kept(batches)]
        battery.assert_equal(rest, expected[STEPS + taken :], f"after {taken}")


@loader_only
@pytest.mark.long
def test_stateful_dataloader_resumes_at_every_step_and_twice(make, expected, tmp_path):
    """Accelerate's own way, by torchdata."""

    def prepared():
        acc = accelerator(use_stateful_dataloader=True)
        return acc, acc.prepare(make().as_dataloader())

    for taken in range(1, STEPS + 1):
        acc, batches = prepared()
        battery.kept(batches)
        _save_after(acc, batches, taken, tmp_path / "first")
        acc, batches = prepared()
        acc.load_state(str(tmp_path / "first"))
        _save_after(acc, batches, 1, tmp_path / "second")
        acc, batches = prepared()
        acc.load_state(str(tmp_path / "second"))
        got = battery.epochs(batches, 2)
        assert len(got) == 2 * STEPS - (taken + 1) % STEPS
        battery.assert_equal(got, expected[STEPS + taken + 1 :][: len(got)], f"after {taken} and one more")


def _save_after(acc, batches, taken, folder):
    for received, _ in enumerate(batches, 1):
        if received == taken:
            acc.save_state(str(folder))
            return


def test_skip_first_batches_reads_none_of_them(make, expected):
    read = []

    def watch(sample, rng):
        read.append(sample["text"])
        return sample

    acc = accelerator()
    batches = acc.prepare(make(map=watch).as_dataloader())
    batches.set_epoch(2)
    got = battery.kept(acc.skip_first_batches(batches, 4))
    rest = expected[2 * STEPS + 4 : 3 * STEPS]
    battery.assert_equal(got, rest, "the rest of epoch 2")
    assert sorted(read) == sorted(text for batch in rest for text in batch["text"])


def test_set_epoch_of_what_is_prepared(make, expected):
    batches = accelerator().prepare(make().as_dataloader())
    for epoch in (3, 1):
        batches.set_epoch(epoch)
        battery.assert_equal(battery.kept(batches), expected[epoch * STEPS :][:STEPS], f"epoch {epoch}")


def test_the_end_is_known(make):
    """Gradient accumulation steps at an epoch's last batch, and only there."""
    acc = Accelerator(cpu=True, gradient_accumulation_steps=3)
    batches = acc.prepare(make().as_dataloader())
    stepped = []
    for _ in range(2):
        for _ in batches:
            with acc.accumulate():
                stepped.append(acc.sync_gradients)
    assert stepped == [False, False, True, False, False, True, True] * 2


@pytest.mark.parametrize(("remainder", "samples"), [("short", 40), ("wrap", 40), ("drop", 36)])
def test_gather_for_metrics_counts_no_sample_twice(make, remainder, samples):
    acc = accelerator()
    batches = acc.prepare(make(remainder=remainder).as_dataloader())
    assert sum(len(acc.gather_for_metrics(batch["label"])) for batch in batches) == samples


def test_recipe(make, expected, tmp_path):
    def run(folder, **stop):
        model = torch.nn.Linear(1, 1)
        names = {"model": model, "optimizer": torch.optim.SGD(model.parameters()), "loader": make(), "epochs": 3}
        acc = accelerator()
        save = {"save": lambda _: acc.save_state(str(tmp_path))}
        return run_recipe("Accelerate", accelerator=acc, resume=folder, **save, **names, **stop)

    taken = STEPS + 3
    battery.assert_equal(run(None, stop_after=taken), expected[:taken], "stopped")
    battery.assert_equal(run(str(tmp_path)), expected[taken : 3 * STEPS], "resumed")
