"""Libraries of other versions than the doctor knows: hooks bind by what things are for, and say what they miss."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from probing import notes, probed
from training_loops import Loop, pairs

from headrace.doctor.causes import diagnose
from headrace.doctor.probe.hooks import dataloader, hooks_of, worker_queues
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.step_records import ObservedPass
from headrace.doctor.session import read_session
from headrace.doctor.session.model import CommandOutcome


@pytest.fixture
def queues() -> Iterator[tuple[Any, Any]]:
    """Such as a worker loop is given: indices come by the first, batches leave by the second."""
    context = multiprocessing.get_context("spawn")
    indices, data = context.Queue(), context.Queue()
    yield indices, data
    for queue in (indices, data):
        queue.close()
        queue.join_thread()


def hook_of(probe: Probe, module: str) -> Callable[[Any], object]:
    """What the probe calls with that module."""
    return dict(hooks_of(probe))[module]


class Numbers:
    """A dataset."""


def test_the_roles_are_those_of_torch_to_2_14(queues: tuple[Any, Any]) -> None:
    names = {"dataset": [1, 2], "index_queue": queues[0], "data_queue": queues[1], "worker_id": 3, "num_workers": 4}
    assert worker_queues.loop_roles(names) == worker_queues.LoopRoles([1, 2], *queues, 3, 4)


def test_the_dataset_that_torch_2_15_hands_over_in_a_list_is_left_there(queues: tuple[Any, Any]) -> None:
    holder = [Numbers()]
    roles = worker_queues.loop_roles({"dataset_holder": holder, "index_queue": queues[0], "data_queue": queues[1]})
    assert roles.dataset is holder[0]
    assert len(holder) == 1


def test_queues_of_unknown_names_are_told_by_their_order(queues: tuple[Any, Any]) -> None:
    roles = worker_queues.loop_roles({"kind": 0, "what": Numbers(), "first": queues[0], "second": queues[1], "seed": 7})
    assert (roles.index_queue, roles.data_queue) == queues
    assert roles.dataset is None


def test_a_loop_whose_queues_are_not_found_is_told_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, ran = ModuleType("torch.utils.data._utils.worker"), []
    vars(worker)["_worker_loop"] = lambda channel: ran.append(channel)
    worker._worker_loop.__module__ = worker.__name__
    with probed(tmp_path) as probe:
        hook_of(probe, worker.__name__)(worker)
        worker._worker_loop("pipe")
    assert ran == ["pipe"]
    assert notes(tmp_path)["not-known"] == (
        f"torch {torch.__version__}'s torch.utils.data._utils.worker._worker_loop is not known to this doctor: "
        "what workers do was not seen."
    )
    assert "hook-off" not in notes(tmp_path)


def test_a_module_without_what_is_hooked_is_told(tmp_path: Path) -> None:
    with probed(tmp_path) as probe:
        hook_of(probe, "torch.utils.data.dataloader")(SimpleNamespace(__name__="torch.utils.data.dataloader"))
    assert "batches of its loaders were not seen" in notes(tmp_path)["not-known"]


def test_the_verdict_says_what_could_not_be_hooked(tmp_path: Path) -> None:
    with probed(tmp_path) as probe:
        Loop().step(pairs(4)[:4])
        probe.patches.hook(sys.modules["torch"], "utils.data.no_such_thing", lambda original: original, "passes were")
    session = read_session(tmp_path, outcome=CommandOutcome(["python", "train.py"], 0, "finished", 1), mode="observe")
    assert "torch.utils.data.no_such_thing is not known to this doctor: passes were not seen." in (
        diagnose(session).verdict
    )


def test_an_iterator_that_knows_no_order_is_followed(tmp_path: Path) -> None:
    """torch before 2.6 has no `in_order`."""
    iterator = SimpleNamespace(_rcvd_idx=3)
    with probed(tmp_path) as probe:
        pass_ = ObservedPass(probe.training, 0, 0, True, loader=0, owner=lambda: None, makers=2)
        iterators = torch.utils.data.dataloader._BaseDataLoaderIter
        hooks = dataloader.LoaderHooks(probe.training, probe.comparison, iterators)
        assert hooks._received(iterator, pass_, torch.zeros(4), 1, 2).index_ == 2
