"""What is replaced does what it did, and comes back."""

from __future__ import annotations

import types

import pytest

from headrace.doctor.probe.patches import Patches


@pytest.fixture
def patches():
    patches = Patches()
    yield patches
    patches.restore()


def counting(calls):
    def make(original):
        def wrapper(*args, **kwargs):
            calls.append(args)
            return original(*args, **kwargs)

        return wrapper

    return make


class Base:
    def method(self):
        return self

    @classmethod
    def made_by_class(cls):
        return cls

    @staticmethod
    def static(value):
        return value


def make_classes():
    base = type("Fresh", (Base,), dict(vars(Base)))
    return base, type("Derived", (base,), {})


@pytest.mark.parametrize("inherited", [False, True], ids=["own", "inherited"])
def test_each_kind_of_method_still_binds_as_it_did(inherited, patches):
    base, derived = make_classes()
    owner = derived if inherited else base
    before = dict(vars(owner))
    calls = []
    for name in ("method", "made_by_class", "static"):
        assert patches.replace(owner, name, counting(calls))
    instance = derived()
    assert instance.method() is instance
    assert derived.made_by_class() is instance.made_by_class() is derived
    assert derived.static(3) == instance.static(3) == 3
    assert len(calls) == 5
    patches.restore()
    assert dict(vars(owner)) == before


def test_what_is_not_there_or_takes_nothing_is_left(patches):
    module = types.ModuleType("module")
    module.value = 3
    assert not patches.replace(module, "absent", counting([]))
    assert not patches.replace(module, "value", counting([]))
    assert not patches.replace(dict, "get", counting([]))
    assert vars(module)["value"] == 3


def test_what_others_put_over_it_stays(patches):
    module = types.ModuleType("module")
    module.call = lambda: 1
    patches.replace(module, "call", counting([]))
    module.call = theirs = lambda: 2
    patches.restore()
    assert module.call is theirs
