"""Training steps of torch on the CPU for fit_budget, in processes with a limit of their memory.

    budget_steps.py CHECK         prints what it finds as JSON

Run by itself, or as ranks under torchrun with OUT as the second argument, where each writes OUT/RANK.json.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import headrace as hr
from headrace.device.memory import CpuMemory

MIB = 1 << 20
SIDE = 64
ROOM_BYTES = 200 * MIB


def limit_memory(room_bytes: int) -> None:
    """Address space for so much more than there is now."""
    size_pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (size_pages * resource.getpagesize() + room_bytes, resource.RLIM_INFINITY))


def convolutions() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    """About 160 bytes a pixel: what the activations of eight channels take."""
    torch.manual_seed(0)
    torch.backends.mkldnn.enabled = False  # it maps memory of its own for every size it meets, and keeps it
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Sigmoid(), nn.Conv2d(8, 8, 1), nn.Sigmoid(), nn.Conv2d(8, 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(samples: int, height: int, width: int) -> None:
        optimizer.zero_grad()
        model(torch.rand(samples, 3, height, width)).mean().backward()
        optimizer.step()

    return model, optimizer, step


def warmed_up(step: Any) -> None:
    """Threads and libraries are there before the limit."""
    torch.set_num_threads(1)
    step(1, SIDE, SIDE)


def fitted() -> Any:
    """The budget found; whether it runs, and one 1.3 times as large; and whether the state is what it was."""
    model, optimizer, step = convolutions()
    warmed_up(step)
    before = [model.state_dict()["0.weight"].clone(), optimizer.state_dict()["state"][0]["exp_avg"].clone()]
    random_before = torch.get_rng_state()
    limit_memory(ROOM_BYTES)
    budget = hr.fit_budget(
        step, shapes=[(SIDE, SIDE), (2 * SIDE, SIDE)], restore=[model, optimizer], device="cpu", margin=0.02
    )
    after = [model.state_dict()["0.weight"], optimizer.state_dict()["state"][0]["exp_avg"]]
    return {
        "samples": budget.pixels // SIDE**2,
        "same": all(map(torch.equal, before, after)) and torch.equal(random_before, torch.get_rng_state()),
        "gradients": [parameter.grad is None for parameter in model.parameters()],
        "fits": runs(step, budget.pixels // SIDE**2),
        "fits_1.3": runs(step, int(1.3 * budget.pixels / SIDE**2)),
        "within": budget.fit.largest.peak_bytes <= budget.fit.limit_bytes < budget.fit.capacity_bytes,
        "report": str(budget.fit),
    }


def runs(step: Any, samples: int) -> bool | str:
    """Whether the step does, after the one before has given its memory back; else the error."""
    CpuMemory().begin()
    try:
        step(samples, SIDE, SIDE)
    except RuntimeError as error:
        return str(error)
    return True


def attention() -> Any:
    """Memory that grows with the square of the length: the long lengths decide."""
    torch.set_num_threads(1)

    def step(samples: int, length: int) -> None:
        tokens = torch.rand(samples, length, 8, requires_grad=True)
        ((tokens @ tokens.transpose(1, 2)).softmax(-1) @ tokens).sum().backward()

    step(1, 16)
    limit_memory(ROOM_BYTES)
    budget = hr.fit_budget(step, lengths=[64, 1024], device="cpu")
    return {"samples": budget.tokens // 1024, "shape": budget.fit.largest.shape, "report": str(budget.fit)}


def too_small() -> Any:
    _, _, step = convolutions()
    warmed_up(step)
    limit_memory(ROOM_BYTES)
    try:
        hr.fit_budget(step, shapes=[(4096, 4096)], device="cpu")
    except hr.HeadraceError as error:
        return str(error)


def of_two_ranks() -> Any:
    """Rank 1 has less room. The model is in DistributedDataParallel, and the ranks' steps are of different sizes."""
    with hr.distributed.start(timeout_s=60.0, device="cpu") as ranks:
        model, optimizer, plain = convolutions()
        wrapped = ranks.wrap(model)

        def step(samples: int, height: int, width: int) -> None:
            optimizer.zero_grad()
            wrapped(torch.rand(samples, 3, height, width)).mean().backward()
            optimizer.step()

        torch.set_num_threads(1)
        step(1, SIDE, SIDE)
        limit_memory(ROOM_BYTES * 5 // (5 + 3 * ranks.rank))
        budget = hr.fit_budget(step, shapes=[(SIDE, SIDE)], restore=[wrapped, optimizer], device="cpu")
        found = {"pixels": budget.pixels, "ranks": budget.fit.ranks}
        step(budget.pixels // SIDE**2, SIDE, SIDE)

        def fails_on_1(samples: int, height: int, width: int) -> None:
            if ranks.rank == 1:
                raise ValueError("expected 3 channels")
            plain(samples, height, width)

        try:
            hr.fit_budget(fails_on_1, shapes=[(SIDE, SIDE)], device="cpu")
        except Exception as error:
            found["failed"] = f"{type(error).__name__}: {error}"
        return found


def main(check: str, out: str | None = None) -> None:
    found = json.dumps(globals()[check]())
    if out is None:
        print(found)
    else:
        (Path(out) / f"{os.environ['RANK']}.json").write_text(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
