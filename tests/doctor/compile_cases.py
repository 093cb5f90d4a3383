"""A script: what torch.compile makes of functions that reach what the probe hooks. Prints it as JSON.

Run with the probe and without, it must print the same.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def counted(run: Callable[[], Any]) -> dict[str, Any]:
    """What the compiler counts while `run` runs, and what that gives."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    try:
        result = run()
    except Exception as error:
        result = f"{type(error).__name__}: {str(error)[:300]}"
    return {
        "result": result,
        "frames": dict(counters["frames"]),
        "graphs": counters["stats"].get("unique_graphs"),
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters["recompiles"].values()),
    }


def whole_graph(backend: str) -> list[float]:
    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(torch.float64).to("cpu").float() * 2

    compiled = torch.compile(moved, backend=backend, fullgraph=True)
    return [compiled(torch.arange(3.0)).tolist() for _ in range(3)][-1]


def exported() -> str:
    class Model(torch.nn.Module):
        def forward(self, tensor: Tensor) -> Tensor:
            return tensor.to(torch.float64) + 1

    return str(torch.export.export(Model(), (torch.ones(2),)).graph)


def broken_by_backward() -> int:
    model = torch.nn.Linear(4, 1)

    @torch.compile(backend="eager")
    def step(inputs: Tensor) -> Tensor:
        loss = model(inputs.to(torch.float32)).sum()
        loss.backward()
        return loss.detach() * 2

    for _ in range(3):
        step(torch.ones(2, 4))
    return 3


def compiled_optimizer() -> float:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    @torch.compile(backend="eager")
    def step() -> None:
        optimizer.step()

    for _ in range(3):
        weight.grad = torch.ones(2)
        step()
    return weight.sum().item()


def compiled_collective() -> list[float]:
    @torch.compile(backend="eager", fullgraph=True)
    def reduced(tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor * 2

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return reduced(torch.ones(2)).tolist()
    finally:
        dist.destroy_process_group()


def compiled_autograd() -> float:
    """With a probe that believes in several ranks, and would stamp every fifth step."""
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        for _ in range(12):
            optimizer.zero_grad()
            (weight * 2).sum().backward()
            optimizer.step()
    return weight.sum().item()


CASES: dict[str, Callable[[], Any]] = {
    "eager": lambda: whole_graph("eager"),
    "aot_eager": lambda: whole_graph("aot_eager"),
    "export": exported,
    "backward": broken_by_backward,
    "optimizer": compiled_optimizer,
    "collective": compiled_collective,
    "compiled autograd": compiled_autograd,
}


def main() -> None:
    warnings.simplefilter("ignore")
    probe: Any = sys.modules.get("_headrace_probe")
    if probe is not None:
        from _headrace_probe.hooks import loop_calls

        loop_calls.install_copies(probe._active.patches, probe._active.training, torch)
        probe._active.training.group.world_size = lambda: 2
    print(json.dumps({name: counted(case) for name, case in CASES.items()}))


if __name__ == "__main__":
    main()
