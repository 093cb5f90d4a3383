"""`LoaderSpec` has the arguments of `Loader`: the same names and types, in the same order."""

from __future__ import annotations

import dataclasses
import inspect

import headrace as hr
from headrace.loader.loader_spec import LoaderSpec


def test_a_spec_has_the_loaders_arguments():
    parameters = inspect.signature(hr.Loader).parameters.values()
    expected = {(each.name, each.annotation) for each in parameters}
    assert {(each.name, each.type) for each in dataclasses.fields(LoaderSpec)} == expected
