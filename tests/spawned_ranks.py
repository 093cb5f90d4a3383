"""Two ranks of torch.multiprocessing.spawn, as PyTorch's tutorial of DDP starts them: no launcher's variables.

    python spawned_ranks.py LIST OUT PORT

Each writes to OUT/RANK.json what loaders gave or said: made before the process group, in it, and used after it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.errors import UsageError

BATCH = 4
RANKS = 2


def loader_of(where: str, **options: Any) -> hr.Loader:
    data = hr.open(where)
    return hr.Loader(data, {"number": hr.Label()}, batch_size=BATCH, shuffle=True, seed=3, **options)


def numbers(batches: Any) -> list[list[int]]:
    return [batch["number"].tolist() for batch in batches]


def spawned(rank: int, where: str, out: str, port: int) -> None:
    import torch.distributed as group

    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    early, mixed, given = loader_of(where), hr.mix({"a": loader_of(where)}), loader_of(where, rank=0, world_size=1)
    sampler, begun = hr.ResumableBatchSampler(40, BATCH), iter(loader_of(where))
    threads = hr.ThreadDataLoader(range(40), batch_sampler=hr.ResumableBatchSampler(40, BATCH), num_workers=0)
    prefetched = hr.DevicePrefetcher(loader_of(where), "cpu")
    handed_on = hr.ThreadDataLoader(range(40), batch_size=BATCH, num_workers=0).as_dataloader()
    group.init_process_group("gloo", rank=rank, world_size=RANKS)
    said: dict[str, Any] = {}
    for name, batches in {
        "Loader": early,
        "mixture": mixed,
        "iterator": begun,
        "sampler": sampler,
        "ThreadDataLoader": threads,
        "DevicePrefetcher": prefetched,
        "as_dataloader": handed_on,
    }.items():
        try:
            next(iter(batches))
        except UsageError as error:
            said[name] = str(error)
    begun.close()
    said["given"] = numbers(given)
    inside = loader_of(where)
    said["numbers"] = numbers(inside)
    said["mixed"] = numbers(hr.mix({"a": loader_of(where)}))
    said["batches"] = [list(batch) for batch in hr.ResumableBatchSampler(40, BATCH, seed=3)]
    group.destroy_process_group()
    said["after the group"] = numbers(inside)
    (Path(out) / f"{rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    import torch.multiprocessing

    where, out, port = sys.argv[1:]
    torch.multiprocessing.spawn(spawned, args=(where, out, int(port)), nprocs=RANKS)
