"""Which of a run's ranks this process is, and the device and backend that it gets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from headrace.errors import UsageError
from headrace.system.rank import Launcher, launcher_of

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets, and what others that launch ranks must."""


@dataclass(frozen=True)
class Place:
    """`rank` of `world_size`, the `local_rank`th on this machine; `launched` is False for a process by itself."""

    rank: int
    world_size: int
    local_rank: int
    launched: bool


def place_of(environment: Mapping[str, str]) -> Place:
    """Return the place that a launcher's variables give; rank 0 of 1 without any.

    They are torchrun's, else those of MPI or of a step of SLURM, with MASTER_ADDR and MASTER_PORT, where ranks meet.

    Raises UsageError where some of them are missing, are no ints, or do not fit together.
    """
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        launcher = launcher_of(environment)
        if launcher is None or environment[launcher.world_size] == "1":
            return Place(0, 1, 0, launched=False)
        return place_of(_as_torchrun_has_it(environment, launcher))
    missing = [name for name in LAUNCHED if not environment.get(name)]
    if missing:
        raise UsageError(
            f"expected {', '.join(LAUNCHED)} together, as torchrun sets them, got none of {', '.join(missing)}; start "
            "with `torchrun --nproc-per-node N script.py`, or unset RANK and WORLD_SIZE for one process"
        )
    rank, world_size, local_rank = (_number(environment, name) for name in LAUNCHED[:3])
    if not 0 <= rank < world_size or not 0 <= local_rank < world_size:
        raise UsageError(
            f"expected RANK and LOCAL_RANK in 0 … WORLD_SIZE - 1, got RANK={rank}, LOCAL_RANK={local_rank} and "
            f"WORLD_SIZE={world_size}"
        )
    return Place(rank, world_size, local_rank, launched=True)


def _as_torchrun_has_it(environment: Mapping[str, str], launcher: Launcher) -> dict[str, str]:
    missing = [name for name in (launcher.local_rank, "MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise UsageError(
            f"expected MASTER_ADDR and MASTER_PORT beside {launcher.rank}, {launcher.world_size} and "
            f"{launcher.local_rank}, which {launcher.name} sets, got none of {', '.join(missing)}; export the first "
            "host's name and a free port, start one torchrun on each node, or unset "
            f"{launcher.rank} for a process by itself"
        )
    names = {"RANK": launcher.rank, "WORLD_SIZE": launcher.world_size, "LOCAL_RANK": launcher.local_rank}
    return dict(environment) | {name: environment[of_launcher] for name, of_launcher in names.items()}


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise UsageError(f"expected {name} to be an int, got {environment[name]!r}") from None


def own_place() -> Place:
    return place_of(os.environ)


def device_of(place: Place, kind: str | None) -> torch.device:
    """cuda:LOCAL_RANK where torch sees a GPU, else cpu; `kind`, "cuda" or "cpu", leaves no choice."""
    if kind not in (None, "cuda", "cpu"):
        raise UsageError(f"device: expected 'cuda', 'cpu' or None, got {kind!r}; LOCAL_RANK says which GPU")
    if kind == "cpu" or (kind is None and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if place.local_rank >= count:
        raise UsageError(
            f"expected a GPU for each rank of a machine, got LOCAL_RANK={place.local_rank} and {count} GPUs; start "
            f"fewer ranks (--nproc-per-node {count}), or pass device='cpu'"
        )
    return torch.device("cuda", place.local_rank)


def backend_of(device: torch.device) -> str:
    return "nccl" if device.type == "cuda" else "gloo"
