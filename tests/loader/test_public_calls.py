"""What `dir` shows of a loader: the calls that the docs describe, and nothing of what runs it."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest
from loader_data import write_folder

import headrace as hr

POSITION = {"epoch", "load_state_dict", "next_step", "seek", "set_epoch", "state_dict"}
COMMON = POSITION | {"as_dataloader", "batch_size", "counts", "rank", "samples", "stats", "world_size"}


@pytest.fixture
def loader(tmp_path):
    return hr.Loader(write_folder(tmp_path / "photos"), view=hr.Resize((8, 8)), batch_size=4, output="numpy")


def public(value):
    return {name for name in dir(value) if not name.startswith("_")}


def test_a_loader(loader):
    assert public(loader) == COMMON | {"dataset", "prefetch", "threads"}


def test_a_mixture(loader):
    assert public(hr.mix({"photos": loader})) == COMMON | {"shares", "source_stats", "sources", "window"}


def test_the_table_of_arguments_is_the_docstring_s():
    path = Path(__file__).parents[2] / "scripts" / "generated_pages.py"
    spec = importlib.util.spec_from_file_location("generated_pages", path)
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    described = {name for names in page.arguments() for name in names.split(", ")}
    assert described == set(inspect.signature(hr.Loader).parameters) - {"data", "fields"}
    text = (page.PAGES / "loader.md").read_text()
    assert page.written(text) == text, "run scripts/generated_pages.py"
