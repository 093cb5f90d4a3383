"""What may be cached is found by looking: samples are made twice, and whoever draws random numbers is seen to."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from cases import augmentations
from machine_findings import quantities
from made_prescriptions import COLUMNS, ROOMY
from observed_runs import python
from probed import merged, run_probed
from probing import probed, records
from processes import DEADLINE_S
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from headrace.doctor.causes.findings import diagnose
from headrace.doctor.causes.prescription import prescribe
from headrace.doctor.probe import sample_comparison
from headrace.doctor.probe.sample_digests import digest_of
from headrace.doctor.session.model import Machine, Session

pytestmark = pytest.mark.usefixtures("kept_simulations")

ENDLESS = 10**6
"""Steps to measure: the run ends by itself."""


def roomy(session: Session) -> Session:
    """On a machine with memory to spare."""
    tables: dict[str, list[float | None]] = {name: [value] for name, value in COLUMNS.items()}
    session.machines = [Machine(session.processes[0].host, dict(ROOMY), [0], tables, {})]
    return session


def here(folder: Path, shape: str) -> Session:
    """Trained in this process, which makes its batches itself."""
    with probed(folder, observe=False, steps=ENDLESS, warmup=3):
        augmentations.train(shape, 0, steps=14)
    return roomy(merged(folder))


def assert_nothing_random_is_cached(session: Session) -> None:
    prescription = prescribe(session, diagnose(session))
    (cache,) = [one for one in prescription.remedies if one.code == "cache"]
    assert cache.title.endswith((" decoding", " Pillow convert"))


@pytest.mark.parametrize("shape", ["classes", "pairs", "own_crop"])
@pytest.mark.one_in(4)
def test_no_cache_freezes_what_is_random(tmp_path: Path, shape: str) -> None:
    assert_nothing_random_is_cached(here(tmp_path, shape))


@pytest.mark.long
@pytest.mark.parametrize("shape", ["classes", "pairs", "own_crop"])
def test_no_cache_freezes_what_workers_draw(tmp_path: Path, shape: str) -> None:
    command = python("augmentations.py", shape, 2)
    ran = run_probed(command, tmp_path, observe=False, steps=ENDLESS, warmup=3)
    assert ran.returncode == 0, ran.stderr
    session = roomy(merged(tmp_path))
    assert {maker.worker for maker in session.makers if maker.looks} == {0, 1}
    assert_nothing_random_is_cached(session)


@pytest.mark.long
def test_a_resize_that_is_the_same_each_time_is_cached(tmp_path: Path) -> None:
    session = here(tmp_path, "fixed")
    prescription = prescribe(session, diagnose(session))
    found = next(one for one in prescription.remedies if one.code == "cache")
    assert found.helps, found.why
    assert found.title.endswith(" OpenCV cvtColor")
    assert "8" in quantities(found.why)


def test_a_run_that_is_only_observed_makes_no_sample_twice(tmp_path: Path) -> None:
    made: list[int] = []
    with probed(tmp_path):
        list(DataLoader(Counted(made), batch_size=4))
    assert made == list(range(16))
    looks = records(tmp_path, "look")
    assert looks
    assert all(same is None for *_, same in looks)


class Counted(Dataset[float]):
    """Draws from all generators, and notes which samples were made."""

    def __init__(self, made: list[int], own: Callable[[], float] = lambda: 0.0) -> None:
        self.made = made
        self.own = own

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> float:
        self.made.append(index)
        return random.random() + np.random.random() + torch.rand(()).item() + self.own()


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(16)


def looked(folder: Path, dataset: Any, **arguments: Any) -> tuple[list[Any], list[list[Any]]]:
    """Its batches, and what was seen of samples: whether they drew, and whether they were the same."""
    # A machine that others use may stop a process for longer than a sample may take.
    with patch.object(sample_comparison, "MOST_NS", DEADLINE_S * 10**9), probed(folder, observe=False, steps=ENDLESS):
        batches = list(DataLoader(dataset, batch_size=4, **arguments))
    return batches, [look[4:6] for look in records(folder, "look")]


def test_samples_made_twice_leave_the_random_numbers_of_the_run_as_they_were(tmp_path: Path) -> None:
    def seeded(make: Callable[[], Any]) -> Any:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        return make()

    made: list[int] = []
    plain = seeded(lambda: list(DataLoader(Counted([]), batch_size=4)))
    batches, looks = seeded(lambda: looked(tmp_path, Counted(made)))
    assert all(torch.equal(one, other) for one, other in zip(batches, plain, strict=True))
    assert looks == [[1, 0]] * 8
    assert sorted(made) == sorted([*range(16), *range(4, 12)])


@pytest.mark.parametrize("source", [random.random, np.random.random, lambda: torch.rand(()).item()])
def test_each_generator_that_everybody_shares_is_looked_at(tmp_path: Path, source: Callable[[], float]) -> None:
    class One(Dataset[float]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> float:
            return index + 0 * source()

    _, looks = looked(tmp_path, One())
    assert looks == [[1, 1]] * 8


def test_a_generator_of_the_datasets_own_is_known_by_what_it_does(tmp_path: Path) -> None:
    own = np.random.default_rng(5)

    class One(Dataset[float]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> float:
            return index + own.random()

    _, looks = looked(tmp_path, One())
    assert looks == [[0, 0]] * 8


def test_samples_that_come_together_are_looked_at_one_by_one(tmp_path: Path) -> None:
    batches, looks = looked(tmp_path, Subset(range(100, 200), list(range(16))))  # type: ignore[arg-type]  # has a length
    assert [batch.tolist() for batch in batches[:1]] == [[100, 101, 102, 103]]
    assert looks == [[0, 1]] * 8


def test_a_stream_is_looked_at_as_it_comes(tmp_path: Path) -> None:
    batches, looks = looked(tmp_path, Stream())
    assert torch.cat(batches).tolist() == list(range(16))
    assert looks == [[0, None]] * 8


def test_a_sample_that_cannot_be_made_again_is_another_one(tmp_path: Path) -> None:
    class Once(Dataset[int]):
        def __init__(self) -> None:
            self.left = {index: index for index in range(16)}

        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> int:
            return self.left.pop(index)

    batches, looks = looked(tmp_path, Once())
    assert torch.cat(batches).tolist() == list(range(16))
    assert looks == [[0, 0]] * 8
    assert "hook-off" not in [code for _, _, code, _ in records(tmp_path, "note")]


def test_digests_of_what_samples_consist_of() -> None:
    first = {"image": np.arange(6).reshape(2, 3), "boxes": [torch.ones(2)], "text": "a", "none": None}
    again = {"image": np.arange(6).reshape(2, 3), "boxes": [torch.ones(2)], "text": "a", "none": None}
    assert digest_of(first) == digest_of(again)
    assert digest_of(first) != digest_of({**again, "image": np.arange(6).reshape(3, 2)})
    assert digest_of(torch.zeros(4)) != digest_of(torch.zeros(4, dtype=torch.int32))
    assert digest_of(object()) is None
    assert digest_of([object()]) is None
