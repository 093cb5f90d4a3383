"""The battery over `map_workers`: no number of processes, start method or way of the results changes a bit."""

from __future__ import annotations

import battery
import numpy as np
import pytest
from loader_data import write_folder, write_tar
from map_functions import every_kind, no_pid

import headrace as hr
from headrace.loader.batch_memory import SharedFile

VIEW = hr.RandomResizedCrop(40, flip=0.5)
WAYS = ("shared", "pipes")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("workers")
    damaged = write_folder(root / "damaged")
    for number in (3, 17):
        path = next(damaged.glob(f"*/{number:04}.*"))
        path.write_bytes(path.read_bytes()[:200])
    return {
        "folder": hr.open(write_folder(root / "photos")),
        "tar": hr.open(write_tar(root / "photos.tar")),
        "damaged": hr.open(damaged),
    }


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """How fields and results travel."""
    if request.param == "pipes":
        monkeypatch.setattr(SharedFile, "make", lambda: None)
    return request.param


CASES = {
    "folder, numpy": {"place": "folder", "output": "numpy"},
    "tar, torch": {"place": "tar", "output": "torch"},
    "tar, bfloat16": {"place": "tar", "output": "torch", "dtype": "bfloat16", "map": every_kind},
    "bad samples, wrap": {"place": "damaged", "output": "numpy", "max_bad": 0.5, "remainder": "wrap"},
}


def factory(places, *, place, output, dtype="uint8", **options):
    def make(**overrides):
        given = {"view": VIEW, "batch_size": battery.GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2}
        given |= {"map": no_pid}
        fields = {"image": hr.Image(dtype=dtype), "label": hr.Label()}
        fields |= {"text": hr.Raw()} if place == "tar" else {}
        return hr.Loader(places[place], fields, output=output, **(given | options | overrides))

    return make


@pytest.mark.one_in(8)
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_any_number_of_workers_gives_what_threads_give(places, case, way, workers):
    make = factory(places, **case)
    expected = battery.epochs(make())
    battery.assert_equal(battery.epochs(make(map_workers=workers)), expected, f"map_workers={workers}")


@pytest.mark.one_in(2)
@pytest.mark.long
def test_memory_is_laid_out_as_by_threads(places, way):
    """A model that is compiled for one layout sees no other."""
    make = factory(places, place="tar", output="torch")
    by_threads, by_workers = (next(iter(make(map_workers=workers))) for workers in (0, 2))
    for name in ("image", "brighter"):
        assert by_workers[name].stride() == by_threads[name].stride()


def test_spawned_workers_give_what_threads_give(places):
    make = factory(places, **CASES["folder, numpy"])
    workers = make(map_workers=2, multiprocessing_context="spawn")
    battery.assert_equal(battery.kept(workers), battery.kept(make()), "spawn")


@pytest.mark.long
def test_resume_with_other_workers(places):
    make = factory(places, place="tar", output="numpy", map_workers=1)
    battery.check_resume_at_every_step(make, map_workers=3, threads=1)


@pytest.mark.long
def test_world_sizes(places):
    make = factory(places, place="folder", output="numpy", map_workers=1)
    battery.check_world_sizes(make)


@pytest.mark.long
@pytest.mark.timeout(600)
@battery.over(CASES, one_in=1)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_whole_battery(places, case, check, way, workers):
    check(factory(places, **CASES[case], map_workers=workers))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.leaks(reason="the server of forkserver lives to the end of the program")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_battery_under_other_start_methods(places, method):
    make = factory(places, place="folder", output="torch", map_workers=2, multiprocessing_context=method)
    expected = battery.epochs(factory(places, place="folder", output="torch")())
    battery.assert_equal(battery.epochs(make()), expected, method)
    battery.check_resume_twice(make)
    for rank in range(2):
        part = {"batch_size": battery.GLOBAL_BATCH // 2, "rank": rank, "world_size": 2}
        battery.assert_equal(
            battery.kept(make(**part)),
            battery.kept(factory(places, place="folder", output="torch")(**part)),
            f"rank {rank}",
        )


def test_the_rows_differ(places):
    """The battery compares equals; this shows that its subjects are not all the same."""
    batch = next(iter(factory(places, place="folder", output="numpy", map_workers=2)()))
    assert len(np.unique(batch["jitter"])) == 2 * battery.GLOBAL_BATCH
