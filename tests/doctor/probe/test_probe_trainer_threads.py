"""Batches that a thread fetches, and training in one: what the training thread waits for."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import torch
from probing import kinds, notes, probed, records
from torch.utils.data import DataLoader
from training_loops import Loop, loader


def test_batches_that_a_thread_fetches_are_waited_for_only_where_it_hands_them_over(tmp_path: Path) -> None:
    loop = Loop()
    handed: queue.Queue[Any] = queue.Queue(2)

    def fetch() -> None:
        for batch in loader(24):
            handed.put(batch)
        handed.put(None)

    with probed(tmp_path):
        thread = threading.Thread(target=fetch, name="ahead")
        thread.start()
        while (batch := handed.get()) is not None:
            loop.step(batch)
        thread.join()
    gets = [get[2] for get in records(tmp_path, "get")]
    others = [fetch[2] for fetch in records(tmp_path, "fetch")]
    assert sorted(gets + others) == list(range(6))
    assert len(gets) >= 5  # the first batch may be there before the queue is known to carry any
    assert len(records(tmp_path, "step")) == 6
    assert "ahead" in notes(tmp_path)["thread"]


def test_a_device_prefetcher_hands_over_what_its_thread_fetched(tmp_path: Path) -> None:
    from headrace import DevicePrefetcher

    with probed(tmp_path):
        Loop().train(DevicePrefetcher(loader(24), "cpu"))
    assert [get[1:3] for get in records(tmp_path, "get")] == [[0, index] for index in range(6)]
    assert records(tmp_path, "fetch") == []
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo"] * 6


def test_training_in_a_thread_is_followed_there(tmp_path: Path) -> None:
    with probed(tmp_path):
        thread = threading.Thread(target=lambda: Loop().train(loader(24)))
        thread.start()
        thread.join()
    steps = records(tmp_path, "step")
    assert len(steps) >= 5
    assert len(records(tmp_path, "get")) >= 5
    assert [kinds(step) for step in steps[1:]] == ["bo"] * (len(steps) - 1)


def test_a_loader_that_a_dataset_reads_is_the_datasets_own(tmp_path: Path) -> None:
    class Outer(torch.utils.data.Dataset[float]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> float:
            return float(sum(len(inputs) for inputs, _ in loader(8)))

    with probed(tmp_path):
        for _ in DataLoader(Outer()):
            pass
    assert len(records(tmp_path, "get")) == 3
    assert len(records(tmp_path, "pass")) == 1
