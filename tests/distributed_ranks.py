"""One of several ranks: runs scenarios of headrace.distributed, each in a block of its own; reports to OUT/RANK.json.

    torchrun --nproc-per-node 2 distributed_ranks.py OUT SCENARIO...

What a scenario returns, or the error that it ends with, is reported under its name; a name that ends in `!` is left to
end the process as it would a user's script.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import dense_data
import numpy as np
import torch
import torch.distributed
from processes import eventually, open_files
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

import headrace as hr
from headrace.distributed import Ranks

TIMEOUT_S = 30.0
"""What the scenarios allow a collective operation, and a rank to begin the next scenario after its peer."""
VAIN_S = 5.0
"""The same where a rank waits in vain."""
LONG_S = 60.0
KEPT_FILES = 12
"""Of the store's connection, and of two groups that models in DistributedDataParallel keep: no five a scenario."""
SAMPLES, PARTS = 8, 4
SCENES_BUDGET_PX = 6000
"""Of each of two ranks."""

Scenario = Any


def place(ranks: Ranks) -> Any:
    group = torch.distributed
    return [
        ranks.rank,
        ranks.world_size,
        ranks.local_rank,
        str(ranks.device),
        ranks.is_first,
        group.get_rank(),
        group.get_backend(),
    ]


def seeds(ranks: Ranks) -> Any:
    """Draws of each generator, twice by the same seed, and once by another."""

    def draws(seed: int) -> list[float]:
        ranks.seed(seed)
        return [float(torch.rand(1)), float(np.random.rand()), random.random()]

    return [draws(7), draws(7), draws(8)]


def same_start(ranks: Ranks) -> Any:
    """A model whose initialisation differs per rank before it is wrapped."""
    ranks.seed(0)
    model = nn.Linear(3, 2)
    before = model.weight.flatten().tolist()
    return [before, ranks.wrap(model).module.weight.flatten().tolist()]


def accumulated(ranks: Ranks) -> Any:
    """Gradients of micro-batches under no_sync, those of the whole batch at once, and how often they were exchanged."""
    torch.manual_seed(0)
    data, plain = torch.randn(SAMPLES * ranks.world_size, 3), nn.Linear(3, 2)
    model, exchanges = ranks.wrap(plain), []

    def count(state, bucket):  # torch wants its own annotations, or none
        exchanges.append(1)
        return allreduce_hook(None, bucket)

    model.register_comm_hook(None, count)
    mine = data[ranks.rank * SAMPLES : (ranks.rank + 1) * SAMPLES].chunk(PARTS)
    for number, part in enumerate(mine, 1):
        with ranks.no_sync(model, unless=number == PARTS):
            (model(part).pow(2).mean() / PARTS).backward()
    together = plain.weight.grad.clone()
    plain.zero_grad()
    plain(data).pow(2).mean().backward()
    return [together.tolist(), plain.weight.grad.tolist(), len(exchanges)]


def batchnorm(ranks: Ranks) -> Any:
    """The kinds of layers after wrap, the warnings, and whether a step runs."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = ranks.wrap(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
        ranks.wrap(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), sync_batchnorm=False)
        ranks.wrap(nn.Linear(3, 4))
    model(torch.randn(2, 3, 4, 4)).sum().backward()
    return [type(model.module[1]).__name__, [[str(one.message), Path(one.filename).name] for one in said]]


def scenes_loader(folder: Path, *, budget_px: int, **place: int) -> hr.Loader:
    """Dense fields in batches of one shape, as many samples as a budget bears."""
    scenes = hr.open(folder / "list.txt", root=folder / "scenes.tar", columns=dense_data.COLUMNS)
    fields = {"key": hr.Raw(source="__key__"), "rgb": hr.Image(), "depth": hr.Depth(), "mask": hr.Mask()}
    return hr.Loader(
        scenes,
        fields,
        view=hr.RandomScale((24, 30, 40), multiple_of=8, flip=0.5),
        buckets=hr.Buckets("aspect", count=3),
        batch_size=hr.Budget(pixels=budget_px, rank_multiple=2),
        shuffle=True,
        **place,
    )


def loaded(loader: hr.Loader) -> Any:
    """Of each batch of an epoch its shape, its samples, and the bytes of each; and the state in its midst."""
    batches, state = [], None
    for step, batch in enumerate(loader):
        rows = [
            hashlib.sha256(
                b"".join(batch[name][row].numpy().tobytes() for name in ("rgb", "depth", "mask"))
            ).hexdigest()
            for row in range(len(batch["key"]))
        ]
        batches.append([list(batch["rgb"].shape[1:]), batch["key"], rows])
        state = loader.state_dict() if step == 2 else state
    return [batches, state]


def loads(ranks: Ranks) -> Any:
    """Rank and world size are those of the launcher."""
    return loaded(scenes_loader(Path(sys.argv[1]) / "scenes", budget_px=SCENES_BUDGET_PX))


def nested(ranks: Ranks) -> Any:
    with hr.distributed.start():
        raise AssertionError


def forked_child(ranks: Ranks) -> Any:
    """How a child of the block's ends by SIGTERM; and the connection to the store works on."""
    context = multiprocessing.get_context("fork")
    there, here = context.Pipe(duplex=False)

    def say_and_wait() -> None:
        here.send("begun")  # Python drops a signal that comes before it has finished forking
        threading.Event().wait(LONG_S)

    child = context.Process(target=say_and_wait)
    child.start()
    there.recv()
    child.terminate()
    child.join()
    ranks.barrier()
    return child.exitcode


def early_exit(ranks: Ranks) -> Any:
    sys.exit(0)


def rank_1_raises(ranks: Ranks) -> Any:
    if ranks.rank == 1:
        raise ValueError("expected 3 channels, got 4")
    torch.distributed.all_reduce(torch.ones(1))


def wrapped_rank_1_raises(ranks: Ranks) -> Any:
    """The model keeps the process group of the rank that failed open until the process ends."""
    model = ranks.wrap(nn.Linear(3, 2))
    if ranks.rank == 1:
        raise ValueError("expected 3 channels, got 4")
    model(torch.ones(1, 3)).sum().backward()


def rank_0_raises_while_1_is_through(ranks: Ranks) -> Any:
    if ranks.rank == 0:
        ranks.barrier()
        raise OSError("disk full")
    ranks.barrier()


def both_raise(ranks: Ranks) -> Any:
    ranks.barrier()
    raise ValueError(f"of rank {ranks.rank}")


def interrupted(ranks: Ranks) -> Any:
    if ranks.rank == 1:
        signal.raise_signal(signal.SIGINT)
    ranks.barrier()


def unequal_steps(ranks: Ranks) -> Any:
    for _ in range(2 + ranks.rank):
        torch.distributed.all_reduce(torch.ones(1))


def rank_1_is_killed(ranks: Ranks) -> Any:
    ranks.barrier()
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    torch.distributed.all_reduce(torch.ones(1))


def rank_1_is_told_to_end(ranks: Ranks) -> Any:
    """By SIGTERM, with no failure behind it."""
    ranks.barrier()
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(LONG_S)
    ranks.barrier()


def first_try_raises(ranks: Ranks) -> Any:
    """What torchrun makes good by a restart."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and ranks.rank == 1:
        raise ValueError("only once")
    torch.distributed.all_reduce(torch.ones(1))
    return os.environ["TORCHELASTIC_RESTART_COUNT"]


def run(scenario: Scenario) -> Any:
    with hr.distributed.start(timeout_s=VAIN_S if scenario is unequal_steps else TIMEOUT_S) as ranks:
        return scenario(ranks)


def outcome(scenario: Scenario) -> Any:
    """What it returns or raises, and what is left of it in this process."""
    begun = time.monotonic()
    try:
        result = run(scenario)
    except BaseException as error:
        result = {"error": type(error).__name__, "text": str(error)}
    return {
        "result": result,
        "took_s": time.monotonic() - begun,
        "group": torch.distributed.is_initialized(),
        "threads": [thread.name for thread in threading.enumerate()],
        "sigterm": str(signal.getsignal(signal.SIGTERM)),
    }


def main(out: Path, names: list[str]) -> None:
    outcomes: dict[str, Any] = {}
    files = open_files()
    for name in names:
        scenario = globals()[name.rstrip("!")]
        if name.endswith("!"):
            run(scenario)
        outcomes[name] = outcome(scenario)
        (out / f"{os.environ['RANK']}.json").write_text(json.dumps(outcomes))
    outcomes["files_closed"] = eventually(lambda: open_files() <= files + KEPT_FILES)
    (out / f"{os.environ['RANK']}.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
