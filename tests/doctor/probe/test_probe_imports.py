"""Modules are told of once they have been imported, whoever imports them and however."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
import zipfile
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
from headrace.doctor.probe.hooks import dataloader, hooks_of
from headrace.doctor.probe.hooks.remote_libraries import REMOTE_CALLS, REMOTE_HOOKS
from headrace.doctor.probe.imports import MODULES, ImportWatch
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.state import ObservedPass
from headrace.doctor.session import read_session
from headrace.doctor.session.model import CommandOutcome

NAMES = ("watched", "beside", "within", "within.inner")


@pytest.fixture
def watch():
    """On the path in front of all others, as the probe's is; no module of these tests outlives them."""
    watch = ImportWatch()
    watch.attach()
    yield watch
    watch.detach()
    assert watch not in sys.meta_path
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def seen(watch):
    told: list[ModuleType] = []
    watch.when_imported("watched", told.append)
    return told


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "watched.py").write_text("value = 1\n")
    (tmp_path / "beside.py").write_text("value = 2\n")
    return tmp_path


def test_a_module_is_told_of_once_with_its_body_run(seen, site):
    module = importlib.import_module("watched")
    importlib.import_module("watched")
    assert seen == [module]
    assert module.value == 1


def test_one_that_is_there_already_is_told_of_at_once(watch):
    told: list[ModuleType] = []
    watch.when_imported("sys", told.append)
    assert told == [sys]


def test_all_who_asked_are_told_in_order(watch, seen, site):
    order: list[int] = []
    for number in range(3):
        watch.when_imported("watched", lambda _, number=number: order.append(number))
    importlib.import_module("watched")
    assert order == [0, 1, 2]


def test_a_submodule_is_told_of_by_its_full_name(watch, site):
    (site / "within").mkdir()
    (site / "within" / "__init__.py").write_text("from . import inner")
    (site / "within" / "inner.py").write_text("")
    told: list[str] = []
    for name in ("within.inner", "within"):
        watch.when_imported(name, lambda module: told.append(module.__name__))
    importlib.import_module("within.inner")
    assert told == ["within.inner", "within"]


def test_looking_for_a_module_tells_nothing_and_breaks_nothing(seen, site):
    """As accelerate and transformers do for each library that they could use."""
    for _ in range(3):
        assert importlib.util.find_spec("watched") is not None
    assert seen == []
    assert [importlib.import_module("watched")] == seen


def test_what_is_nowhere_stays_nowhere(watch, seen):
    watch.when_imported("nothing_of_that_name", seen.append)
    with pytest.raises(ModuleNotFoundError) as error:
        importlib.import_module("nothing_of_that_name")
    assert error.value.name == "nothing_of_that_name"
    assert importlib.util.find_spec("nothing_of_that_name") is None


def test_one_that_fails_is_told_of_when_it_succeeds(seen, site):
    (site / "watched.py").write_text("import beside\nif beside.value == 2: raise RuntimeError('not yet')")
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module("watched")
    assert seen == []
    sys.modules["beside"].value = 3
    assert [importlib.import_module("watched")] == seen


def test_a_reload_works_and_tells_nothing_again(seen, site):
    module = importlib.import_module("watched")
    assert importlib.reload(module) is module
    assert seen == [module]


def test_a_lazy_module_is_told_of_when_it_is_loaded(seen, site):
    """As importlib's documentation makes one."""
    spec = importlib.util.find_spec("watched")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["watched"] = module
    spec.loader.exec_module(module)
    assert seen == []
    assert module.value == 1
    assert seen == [module]


def test_a_body_that_puts_another_object_in_its_place(seen, site):
    """As transformers does: what is imported by everybody is what is told of."""
    (site / "watched.py").write_text("import sys, types; sys.modules[__name__] = types.SimpleNamespace(value=5)")
    module = importlib.import_module("watched")
    assert seen == [module]
    assert module.value == 5


def test_modules_of_a_zip_share_a_loader(watch, seen, tmp_path, monkeypatch):
    """What was listened to for one of them must not take another for it."""
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as file:
        file.writestr("watched.py", "value = 1")
        file.writestr("beside.py", "value = 2")
    monkeypatch.syspath_prepend(tmp_path / "modules.zip")
    told: list[ModuleType] = []
    watch.when_imported("beside", told.append)
    assert importlib.util.find_spec("watched") is not None
    assert importlib.util.find_spec("watched") is not None
    beside = importlib.import_module("beside")
    assert (seen, told) == ([], [beside])
    watched = importlib.import_module("watched")
    assert (seen, told) == ([watched], [beside])


def test_loaders_stay_the_objects_that_they_are(seen, site):
    module = importlib.import_module("watched")
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__loader__)


def test_a_builtin_module_goes_unobserved_and_works(watch, seen, monkeypatch):
    """All of them share a class for a loader, which is not ours to change."""
    monkeypatch.delitem(sys.modules, "faulthandler", raising=False)
    before = dict(vars(importlib.machinery.BuiltinImporter))
    watch.when_imported("faulthandler", seen.append)
    assert importlib.import_module("faulthandler") is not None
    assert dict(vars(importlib.machinery.BuiltinImporter)) == before


def test_what_comes_before_is_told_before_the_body_runs(seen, site):
    order: list[str] = []
    watch = ImportWatch({"watched": lambda: order.append("before")})
    watch.attach()
    (site / "watched.py").write_text("import beside; beside.order.append('body')")
    importlib.import_module("beside").order = order
    watch.when_imported("watched", lambda _: order.append("after"))
    importlib.util.find_spec("watched")
    assert order == []
    importlib.import_module("watched")
    watch.detach()
    for name in ("watched", "beside"):
        sys.modules.pop(name)
    assert order == ["before", "body", "after"]


def test_after_detaching_nothing_is_told(watch, seen, site):
    importlib.util.find_spec("watched")
    watch.detach()
    importlib.import_module("watched")
    assert seen == []


def test_what_starts_the_probe_is_hooked_and_none_of_what_the_probe_itself_imports(tmp_path):
    """Else a module would be executed twice: for the probe, and for who asked for it."""
    hooked = {name for name, _ in hooks_of(Probe(settings(tmp_path, observe=False)))}
    assert hooked >= MODULES
    assert MODULES.isdisjoint(sys.stdlib_module_names)
    assert {name.partition(".")[0] for name in hooked} - {name.partition(".")[0] for name in MODULES} <= {
        *sys.stdlib_module_names,
        *(module.partition(".")[0] for module, _ in REMOTE_HOOKS),  # methods are replaced: it is never too late
        *(module.partition(".")[0] for module in REMOTE_CALLS),
        "pandas",  # whose functions are replaced wherever they were imported before
        "torchdata",
        "torchcodec",
        "torchvision",
        "headrace",
        "nvidia",
        "safetensors",
        "tqdm",
        "wandb",
        "webdataset",
    }


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


def test_what_a_worker_is_is_asked_of_torch_once_it_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.15 has it, whose loop takes the dataset in a list, which it empties."""
    queue = {"get": lambda: None, "put": lambda message: None, "_send_bytes": lambda data: None}
    index_queue, data_queue = SimpleNamespace(**queue), SimpleNamespace(**queue)
    worker, info = ModuleType("torch.utils.data._utils.worker"), SimpleNamespace(id=3, num_workers=4, dataset=Numbers())

    def loop(dataset_holder: Any, index_queue: Any, data_queue: Any) -> None:
        monkeypatch.setattr(torch.utils.data, "get_worker_info", dataset_holder.pop)
        index_queue.get()

    vars(worker)["_worker_loop"] = loop
    with probed(tmp_path) as probe:
        hook_of(probe, worker.__name__)(worker)
        worker._worker_loop([info], index_queue, data_queue)
    ((_, _, facts),) = records(tmp_path, "worker")
    assert (facts["id"], facts["dataset"]) == (3, f"{__name__}.Numbers")
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
probe.detach()
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
