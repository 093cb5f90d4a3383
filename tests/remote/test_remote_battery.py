"""The battery over tars and zips in a store that now and then fails, with all fields, plans, workers and caches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import battery
import pytest
from battery_recipes import SOURCES, every_pair, make_of
from servers import Answer, Seen, StoreServer

import headrace as hr

RECIPES = {str(recipe): recipe for recipe in every_pair(seed=23) if recipe.source in ("tar", "zip")}
_FAILURES = (Answer(503, "SlowDown"), Answer(500, "InternalError"), Answer(act="truncate"), Answer(act="close"))
"""No resets: forked map workers hold the server's end of connections, too, and it would stay open."""
IN_PROCESS = [case for case, recipe in RECIPES.items() if recipe.workers != "map workers"]
Open = Callable[[str], hr.Dataset]
Check = Callable[[battery.Make], None]
_ONE_IN = 7
"""Requests, of which one fails."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Each archive's bytes, by the name of its source."""
    folder = tmp_path_factory.mktemp("archives")
    for source in ("tar", "zip"):
        SOURCES[source](folder)
    return {source: (folder / f"samples.{source}").read_bytes() for source in ("tar", "zip")}


@pytest.fixture
def opened(archives: dict[str, bytes], store: StoreServer, tmp_path: Path) -> Open:
    """Opens an archive in the store."""

    def open_one(source: str) -> hr.Dataset:
        store.objects[f"samples.{source}"] = archives[source]
        address = f"s3://bucket/samples.{source}"
        return hr.open(address, store_options=store.options, cache=tmp_path / "indices")

    return open_one


def fail_now_and_then(store: StoreServer) -> None:
    turn = count(1)

    def fault(seen: Seen) -> Answer | None:
        at = next(turn)
        return None if seen.start is None or at % _ONE_IN else _FAILURES[at // _ONE_IN % len(_FAILURES)]

    store.fault = fault


def one_recipe(opened: Open, store: StoreServer, folder: Path, case: str, check: Check) -> None:
    recipe = RECIPES[case]
    dataset = opened(recipe.source)
    fail_now_and_then(store)
    check(make_of(recipe, dataset, folder))


@battery.over(sorted(IN_PROCESS, key=lambda case: "mix" in case), one_in=29)
def test_battery(opened: Open, store: StoreServer, tmp_path: Path, case: str, check: Check) -> None:
    one_recipe(opened, store, tmp_path, case, check)


@pytest.mark.long
@battery.over([case for case, recipe in RECIPES.items() if recipe.workers == "map workers"])
def test_battery_of_map_workers(opened: Open, store: StoreServer, tmp_path: Path, case: str, check: Check) -> None:
    one_recipe(opened, store, tmp_path, case, check)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.long if at else ()) for at, case in enumerate(RECIPES)]
)
def test_batches_are_those_of_the_archive_here(
    opened: Open, archives: dict[str, bytes], store: StoreServer, tmp_path: Path, case: str
) -> None:
    recipe = RECIPES[case]
    here = tmp_path / f"samples.{recipe.source}"
    here.write_bytes(archives[recipe.source])
    dataset = opened(recipe.source)
    fail_now_and_then(store)
    got = battery.epochs(make_of(recipe, dataset, tmp_path / "one")())
    battery.assert_equal(
        got, battery.epochs(make_of(recipe, hr.open(here), tmp_path / "other")()), "beside the local one"
    )
