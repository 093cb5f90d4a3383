"""Planted faults of orders are found, in forms that people write; correct ones raise no alarm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_samples import COUNT, Samples, classified, codes_of
from made_reports import made_session
from torch.utils.data import DataLoader, Sampler, Subset

from headrace.doctor.faults import session_faults
from headrace.doctor.session.trainers import LoaderFacts, TrainerPass


def in_order(samples: Samples) -> Samples:
    samples.targets.sort()
    return samples


class ShuffledBatches(Sampler):
    """Batch sampler of a script; torch gives such a loader a sequential sampler, which nothing uses."""

    def __len__(self) -> int:
        return COUNT // 6

    def __iter__(self) -> Iterator[list[int]]:
        yield from torch.randperm(COUNT).reshape(-1, 6).tolist()


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("change", "options", "codes"),
    [
        (in_order, {}, ["class-order"]),
        (in_order, {"shuffle": True}, []),
        (in_order, {"batch_size": 1, "batch_sampler": ShuffledBatches()}, []),
        (lambda samples: Subset(in_order(samples), range(55)), {}, ["class-order"]),
    ],
)
def test_the_order_and_the_list_of_samples(change: Any, options: Any, codes: Any, folder: Path, tmp_path: Path) -> None:
    loader = DataLoader(change(Samples(folder, classified)), **{"batch_size": 6, **options})
    assert codes_of(loader, tmp_path) == codes


def distributed(*, shuffle: bool = True) -> dict[str, Any]:
    return {"class": "torch.utils.data.distributed.DistributedSampler", "attributes": {"shuffle": shuffle}}


def within(name: str, sampler: dict[str, Any]) -> dict[str, Any]:
    return {"class": name, "attributes": {"sampler": sampler}}


@pytest.mark.parametrize(
    ("described", "epochs", "codes"),
    [
        ({"sampler": distributed()}, [0, 0, 0], ["same-order"]),
        ({"batch_sampler": within("torch.utils.data.sampler.BatchSampler", distributed())}, [0, 0], ["same-order"]),
        ({"sampler": within("train.WeightedByRank", distributed())}, [3, 3], ["same-order"]),
        ({"sampler": distributed()}, [0, 1], []),
        ({"sampler": distributed(shuffle=False)}, [0, 0], []),
        ({"sampler": distributed()}, [0], []),
        ({"sampler": distributed()}, [None] * 2, []),
    ],
)
def test_a_distributed_sampler_without_set_epoch(
    described: dict[str, Any], epochs: list[int | None], codes: list[str]
) -> None:
    session = made_session(20)
    (trainer,) = session.trainers
    trainer.loaders = [LoaderFacts(0, {"described": described})]
    trainer.passes = [TrainerPass(number, 0, 0, 0, 0, [], epoch) for number, epoch in enumerate(epochs)]
    assert [fault.code for fault in session_faults(session)] == codes
