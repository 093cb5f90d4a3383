"""torch.compile in a process that is observed: nothing of ours is traced, and no graph is broken or built anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import kinds, notes, probed, records
from torch import Tensor
from training_loops import Loop, loader

from headrace.doctor.probe.hooks import copies


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _counted(call: Any, *arguments: Any) -> dict[str, int]:
    """Graphs and breaks of a call of `call`, compiled anew."""
    counters = torch._dynamo.utils.counters
    counters.clear()
    torch.compiler.reset()
    compiled = torch.compile(call, backend="eager")
    for _ in range(3):
        compiled(*arguments)
    return {
        "breaks": sum(counters["graph_break"].values()),
        "frames": counters["frames"]["ok"],
        "graphs": counters["stats"]["unique_graphs"],
        "recompiles": sum(counters["recompiles"].values()),
    }


def _moved(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64).to("cpu").float() * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_whole_graph_stays_one_while_copies_are_hooked(tmp_path: Path, backend: str) -> None:
    tensor = torch.arange(4.0)
    with probed(tmp_path) as probe:
        copies.install(probe, torch)
        compiled = torch.compile(_moved, backend=backend, fullgraph=True)
        assert torch.equal(compiled(tensor), tensor * 2)
        assert torch.equal(compiled(tensor), tensor * 2)


def test_hooks_add_no_graph_no_break_and_no_recompilation(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    def step(inputs: Tensor) -> Tensor:
        loss = model(inputs.to(torch.float32)).sum()
        loss.backward()
        return loss.detach()

    plain = _counted(step, torch.ones(4, 8))
    with probed(tmp_path) as probe:
        copies.install(probe, torch)
        hooked = _counted(step, torch.ones(4, 8))
    assert hooked == plain


def test_a_compiled_model_is_seen_like_any_other(tmp_path: Path) -> None:
    loop = Loop()
    loop.model = torch.compile(loop.model, backend="aot_eager", fullgraph=True)
    with probed(tmp_path):
        loop.train(loader(24))
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo"] * 6
    assert "compile" in notes(tmp_path)


def test_an_optimizer_that_is_compiled_runs_without_hooks(tmp_path: Path) -> None:
    loop = Loop()
    optimizer_step = torch.compile(lambda: loop.optimizer.step(), backend="eager", fullgraph=True)
    with probed(tmp_path):
        for batch in loader(12):
            loop.optimizer.zero_grad()
            loop.loss(batch).backward()
            optimizer_step()
    assert records(tmp_path, "step") == []
    assert {"engine", "compile"} <= set(notes(tmp_path))


def test_a_compiled_autograd_graph_is_not_stamped(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path) as probe:
        probe.training.world_size = lambda: 2
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
            loop.train(loader(40))
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo"] * 10
    assert records(tmp_path, "ready") == []


def test_a_collective_within_a_compiled_function(tmp_path: Path) -> None:
    import torch.distributed as dist

    def reduced(tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor * 2

    with probed(tmp_path):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            compiled = torch.compile(reduced, backend="eager", fullgraph=True)
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        finally:
            dist.destroy_process_group()
