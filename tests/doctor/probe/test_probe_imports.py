"""Modules are told of once they have been imported, whoever imports them and however."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import zipfile
from types import ModuleType

import pytest
from probing import settings

from headrace.doctor.probe.hooks import hooks_of
from headrace.doctor.probe.hooks.remote_libraries import REMOTE_CALLS, REMOTE_HOOKS
from headrace.doctor.probe.imports import MODULES, ImportWatch
from headrace.doctor.probe.probe import Probe

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


def test_looking_for_a_module_tells_nothing_and_breaks_nothing(seen, site):
    """As accelerate and transformers do for each library that they could use."""
    for _ in range(3):
        assert importlib.util.find_spec("watched") is not None
    assert seen == []
    assert [importlib.import_module("watched")] == seen


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


def test_what_starts_the_probe_is_hooked_and_none_of_what_the_probe_itself_imports(tmp_path):
    """Else a module would be executed twice: for the probe, and for who asked for it."""
    hooked = {name for name, _ in hooks_of(Probe(settings(tmp_path, observe=False)))}
    assert hooked >= MODULES
    assert MODULES.isdisjoint(sys.stdlib_module_names)
    assert {name.partition(".")[0] for name in hooked} - {name.partition(".")[0] for name in MODULES} <= {
        *sys.stdlib_module_names,
        *(module.partition(".")[0] for module, _ in REMOTE_HOOKS),  # methods are replaced: it is never too late
        *(module.partition(".")[0] for module in REMOTE_CALLS),
        "torchdata",
        "torchvision",
        "deepspeed",
        "ffcv",
        "grain",
        "headrace",
        "nvidia",
        "safetensors",
        "spdl",
        "tensorflow",
        "tqdm",
        "wandb",
        "webdataset",
    }
