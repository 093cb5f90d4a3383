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

from headrace.doctor.probe.attaching import hooks_of
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
        "torchdata",
        "torchvision",
        "headrace",
        "nvidia",
        "safetensors",
        "tqdm",
        "wandb",
        "webdataset",
    }
