"""The device's view against a run that waits for the device at every point, and what it costs."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import probed, records
from torch.utils.data import DataLoader

pytestmark = pytest.mark.cuda

STEPS, WARM_UP = 40, 10


class Work:
    """Some milliseconds of a device's work in each part of a step."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, device="cuda") for _ in range(4)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.batches = DataLoader([torch.ones(4096)] * 8 * STEPS, batch_size=8, pin_memory=True)  # type: ignore[arg-type]

    def step(self, batch: torch.Tensor, at: Callable[[str], None]) -> None:
        self.optimizer.zero_grad()
        loss = self.model(batch.to("cuda", non_blocking=True).expand(8, 4096).repeat(1024, 1)).square().mean()
        at("b")
        loss.backward()
        at("c")
        self.optimizer.step()
        at("p")


def _synchronised(work: Work) -> dict[str, float]:
    """Median milliseconds of the backward pass and of the whole step, as a clock sees them."""
    times: list[dict[str, float]] = []

    def at(kind: str) -> None:
        torch.cuda.synchronize()
        times[-1][kind] = time.perf_counter()

    for batch in work.batches:
        times.append({})
        at("s")
        work.step(batch, at)
    kept = times[WARM_UP:]
    us = {"backward": (step["c"] - step["b"] for step in kept), "step": (step["p"] - step["s"] for step in kept)}
    return {name: statistics.median(each) * 1e3 for name, each in us.items()}


def _observed(work: Work, folder: Path) -> dict[str, float]:
    with probed(folder):
        for batch in work.batches:
            work.step(batch, lambda _: None)
        torch.cuda.synchronize()
    steps = [
        dict(zip(letters, (tenths / 10 for tenths in itertools.accumulate(gaps)), strict=True))
        for _, number, letters, gaps in records(folder, "device")
        if number >= WARM_UP
    ]
    assert len(steps) >= STEPS - WARM_UP - 2
    return {
        "backward": statistics.median(step["c"] - step["b"] for step in steps) / 1e3,
        "step": statistics.median(step["p"] - step["r"] for step in steps) / 1e3,
        "probe_us": statistics.median(step[5] / 10 for step in records(folder, "step")[WARM_UP:]),
    }


def test_marks_agree_with_a_run_that_waits_for_the_device(tmp_path: Path, record_property: Any) -> None:
    work = Work()
    expected = _synchronised(work)
    seen = _observed(work, tmp_path)
    record_property("probe_us_per_step", seen["probe_us"])
    print(f"the probe cost {seen['probe_us']:.1f} us a step, device marks included")
    assert seen["backward"] == pytest.approx(expected["backward"], rel=0.03)
    assert seen["step"] == pytest.approx(expected["step"], rel=0.03)


def test_a_captured_graph_runs_unharmed(tmp_path: Path) -> None:
    work = Work()
    static = torch.ones(8, 4096, device="cuda")
    with probed(tmp_path):
        for batch in work.batches:
            work.step(batch, lambda _: None)
            break
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = work.model(static)
        graph.replay()
        assert torch.isfinite(result).all()
