"""Libraries of other versions than the doctor knows: hooks bind by what things are for, and say what they miss."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import ignore_patterns
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from probing import notes, probed, records, settings
from torch.utils.data import DataLoader
from training_loops import Loop, pairs

from headrace.doctor import probe as probe_package
from headrace.doctor.causes import diagnose
from headrace.doctor.probe.attaching import hooks_of
from headrace.doctor.probe.hooks import dataloader
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.state import ObservedPass
from headrace.doctor.session import read_session
from headrace.doctor.session.model import CommandOutcome


def hook_of(probe: Probe, module: str) -> Callable[[Any], object]:
    """What the probe calls with that module."""
    return dict(hooks_of(probe))[module]


class Numbers:
    """A dataset."""

    def __getitem__(self, index: int) -> int:
        return index


def test_a_loop_whose_queues_are_not_found_is_told_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, ran = ModuleType("torch.utils.data._utils.worker"), []
    vars(worker)["_worker_loop"] = lambda channel: ran.append(channel)
    worker._worker_loop.__module__ = worker.__name__
    with probed(tmp_path) as probe:
        hook_of(probe, worker.__name__)(worker)
        worker._worker_loop("pipe")
    assert ran == ["pipe"]
    assert notes(tmp_path)["not-known"].startswith(f"torch {torch.__version__}'s {worker.__name__}._worker_loop ")
    assert "hook-off" not in notes(tmp_path)


def test_what_a_worker_is_is_asked_of_torch_once_its_loop_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch 2.15 has it, whose loop takes the dataset in a list, which it empties."""
    index_queue, data_queue = (
        SimpleNamespace(get=lambda: None, put=lambda message: None, _send_bytes=lambda data: None) for _ in range(2)
    )
    worker, info = ModuleType("torch.utils.data._utils.worker"), SimpleNamespace(id=3, num_workers=4, dataset=Numbers())

    def loop(dataset_holder: Any, index_queue: Any, data_queue: Any) -> None:
        monkeypatch.setattr(torch.utils.data, "get_worker_info", dataset_holder.pop)
        index_queue.get()

    vars(worker)["_worker_loop"] = loop
    with probed(tmp_path) as probe:
        hook_of(probe, worker.__name__)(worker)
        worker._worker_loop([info], index_queue, data_queue)
    ((_, _, facts),) = records(tmp_path, "worker")
    assert (facts["id"], facts["num_workers"], facts["dataset"]) == (3, 4, f"{__name__}.Numbers")
    assert notes(tmp_path) == {}


def test_this_torch_has_all_that_is_hooked(tmp_path: Path) -> None:
    with probed(tmp_path):
        Loop().train(DataLoader(pairs(8), batch_size=4, num_workers=1))
    assert not {"not-known", "hook-off"} & set(notes(tmp_path))


def test_the_verdict_says_what_could_not_be_hooked(tmp_path: Path) -> None:
    with probed(tmp_path) as probe:
        Loop().step(pairs(4)[:4])
        probe.patches.hook(sys.modules["torch"], "utils.data.no_such_thing", lambda original: original, "passes were")
    session = read_session(tmp_path, outcome=CommandOutcome(["python", "train.py"], 0, "finished", 1), mode="observe")
    (unknown,) = [one for one in diagnose(session).statements if one.code == "not-known"]
    assert "torch.utils.data.no_such_thing" in unknown.text
    assert "passes were" in unknown.text


@pytest.mark.parametrize("known", [{"_rcvd_idx": 1}, {}])
def test_an_iterator_that_knows_no_order_is_followed(tmp_path: Path, known: dict[str, int]) -> None:
    """torch before 2.6 has no `in_order`. The first batch's index is 0, also where no iterator counts them."""
    iterator = SimpleNamespace(**known)
    with probed(tmp_path) as probe:
        pass_ = ObservedPass(probe.training, 0, 0, True, loader=0, owner=lambda: None, makers=2)
        iterators = torch.utils.data.dataloader._BaseDataLoaderIter
        hooks = dataloader.LoaderHooks(probe.training, iterators)
        assert hooks._received(iterator, pass_, torch.zeros(4), 1, 2).index_ == 0


ATTACHED = """
import importlib, io, json, multiprocessing, os, pkgutil, queue, sys, tarfile, threading, zipfile
package = importlib.import_module("probe")
for module in pkgutil.walk_packages(package.__path__, "probe."):
    importlib.import_module(module.name)
probe = package.start(sys.argv[1])
with tarfile.open(os.path.join(sys.argv[1], "a.tar"), "w") as tar:
    tar.add(__file__, "a.py")
probe.batches.begin(0, 0)
account = probe.batches.current().account
with tarfile.open(os.path.join(sys.argv[1], "a.tar")) as tar:
    content = tar.extractfile("a.py").read()
batch = probe.batches.current()
batch.is_done = True
probe.batches.end(batch)
probe.batches.write(batch)
threads = queue.Queue()
thread = threading.Thread(target=threads.put, args=(len(content),))
thread.start()
assert threads.get() == os.path.getsize(__file__)
thread.join()
child = multiprocessing.get_context("fork").Process(target=int)
child.start()
child.join()
assert child.exitcode == 0
package.stop()
"""


@pytest.mark.parametrize("python", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t"])
@pytest.mark.one_in(6)
def test_the_probe_runs_on_this_python_without_torch(tmp_path: Path, python: str) -> None:
    found = shutil.which(f"python{python}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no python{python} in PATH")
    settings(tmp_path).write()
    script = tmp_path / "attached.py"
    script.write_text(ATTACHED)
    # Of the probe alone: the package above it needs more than the standard library.
    shutil.copytree(Path(str(probe_package.__file__)).parent, tmp_path / "probe", ignore=ignore_patterns("__pycache__"))
    done = subprocess.run(
        [found, "-W", "error", script, tmp_path], capture_output=True, text=True, check=False, env={"LANG": "C.UTF-8"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    ((_, _, facts),) = [record for record in records(tmp_path, "process") if record[2]["argv"][-1] == str(tmp_path)][:1]
    assert facts["python"].startswith(python.rstrip("t"))
    stages = [name for _, _, name in records(tmp_path, "name")]
    assert "scan:tarfile open" in stages
    assert len(records(tmp_path, "batch")) == 1
    assert notes(tmp_path) == {}
