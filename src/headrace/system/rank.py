"""Rank and world size of this process: as given, from torch.distributed, or from a launcher's variables.

torch.distributed comes first once it has begun: gradients are averaged over its group, and `DistributedSampler` uses it
too. Launchers come next, the innermost first. torchrun may run inside a SLURM task, and so may mpirun, whose daemons
are tasks of a separate step, with that step's SLURM_PROCID.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import UsageError, warn_caller

GROUP = "torch.distributed"
TORCHRUN = ("RANK", "WORLD_SIZE")
"""Variables of torchrun; Accelerate, DeepSpeed, Ray Train and the PyTorch operators of Kubernetes set them, too."""
LIGHTNING = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
"""Variables that Lightning's `ddp` sets in the processes that it starts, and then in the first process."""


@dataclass(frozen=True)
class Launcher:
    """Variables of a launcher without knowledge of torch, by which it numbers the processes that it starts."""

    name: str
    rank: str
    world_size: str
    local_rank: str
    started: bool
    """True if `rank` is set only in processes that the launcher started together with `world_size` - 1 others."""


LAUNCHERS = (
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", started=True),
    Launcher("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", started=True),
    Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", started=True),
    # Variables of a step. SLURM_NTASKS belongs to the allocation: a batch script, a shell of salloc and a process of
    # `srun --pty` see it as well, each a single process. A batch script also has SLURM_PROCID=0, but no step.
    Launcher("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", started=False),
)


@dataclass(frozen=True)
class ProcessRank:
    """`rank` of `world_size`, and their source: the caller, torch.distributed, a launcher's variables, or none."""

    rank: int
    world_size: int
    said_by: str

    @property
    def given(self) -> bool:
        return self.said_by == "rank= and world_size="

    def check(self, what: str) -> None:
        """Raise UsageError if a process group that began later has another place for this process.

        `what` is the object made for this place, such as "Loader". Call it before the first batch: a loader made before
        its process group assumes rank 0 of 1, or the place in a launcher's variables.
        """
        if self.given:
            return
        group = _place_in_group()
        if group is not None and group != (self.rank, self.world_size):
            raise UsageError(
                f"{what}: expected to be rank {self.rank} of {self.world_size} as when it was made (from "
                f"{self.said_by}), got rank {group[0]} of {group[1]} from torch.distributed, whose process group began "
                "later; make it after init_process_group, under Lightning in the DataModule's train_dataloader() or "
                "after fabric.launch(), or pass rank= and world_size="
            )
        if group is None and self.world_size > 1 and any(self.said_by.startswith(each.name) for each in LAUNCHERS):
            warn_caller(
                f"{what}: takes the part of rank {self.rank} of {self.world_size}, from {self.said_by}, and "
                "torch.distributed has no process group: if this process trains by itself, pass rank=0 and "
                "world_size=1; if it is one of several, pass rank= and world_size=, or begin the group first"
            )


def rank_of_process(rank: int | None = None, world_size: int | None = None) -> ProcessRank:
    """Return this process's rank and world size.

    The arguments come first, then torch.distributed's default group if it has begun, then the launcher's variables;
    without any it is 0 of 1. It never imports torch. Raises UsageError for one of the two without the other, and for
    variables that do not fit together.
    """
    if (rank is None) != (world_size is None):
        raise UsageError(f"expected rank and world_size together, got rank={rank!r}, world_size={world_size!r}")
    if rank is not None and world_size is not None:
        return ProcessRank(rank, world_size, "rank= and world_size=")
    group = _place_in_group()
    return place_of_variables(os.environ) if group is None else ProcessRank(*group, GROUP)


def ranks_of_node(place: ProcessRank, environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the first of the ranks on this node, and one beyond the last; None if unknown.

    torchrun, and launchers that also set LOCAL_RANK and LOCAL_WORLD_SIZE, number the ranks of a node consecutively.
    mpirun and srun need not.
    """
    local = [environment.get(name, "") for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    if not all(text.isdigit() for text in local):
        return None
    own = str(place.rank), str(place.world_size)
    if any(environment.get(name, said) != said for name, said in zip(TORCHRUN, own, strict=True)):
        return None  # another world's variables
    local_rank, size = (int(text) for text in local)
    first = place.rank - local_rank
    return (first, first + size) if local_rank < size and 0 <= first <= place.world_size - size else None


def _place_in_group() -> tuple[int, int] | None:
    """Return the place in torch.distributed's default group; None if it is not imported, or has not begun."""
    group: Any = sys.modules.get("torch.distributed")
    # A build without it, and a module during its import, lack the second function.
    if group is None or not getattr(group, "is_available", bool)() or not getattr(group, "is_initialized", bool)():
        return None
    return group.get_rank(), group.get_world_size()


def place_of_variables(environment: Mapping[str, str]) -> ProcessRank:
    """Return the place in the variables of the innermost launcher; 0 of 1 without any.

    Raises UsageError for an incomplete set of variables, for a value that is not an int, and for a rank outside the
    world.
    """
    names = [name for name in TORCHRUN if environment.get(name)]
    if len(names) == 2:
        return _place_of(environment, "torchrun", *TORCHRUN)
    if names == ["WORLD_SIZE"] and all(environment.get(name) for name in LIGHTNING):
        return _place_of_lightning(environment)
    launcher = launcher_of(environment)
    found = ProcessRank(0, 1, "no launcher's variables")
    if launcher is not None:
        found = _place_of(environment, launcher.name, launcher.rank, launcher.world_size)
    if not names or (names == ["WORLD_SIZE"] and found.world_size == _int(environment, "WORLD_SIZE")):
        return found
    # Scripts for SLURM set WORLD_SIZE by hand; another value than srun's is a mistake.
    if (environment.get("RANK") or "0", environment.get("WORLD_SIZE") or "1") == ("0", "1"):
        return found
    _int(environment, names[0])
    raise UsageError(
        f"expected RANK and WORLD_SIZE together in the environment, as torchrun sets them, got "
        f"RANK={environment.get('RANK')} and WORLD_SIZE={environment.get('WORLD_SIZE')}; set both, or pass rank= and "
        "world_size="
    )


def launcher_of(environment: Mapping[str, str]) -> Launcher | None:
    """Return the launcher of these variables, of those without knowledge of torch; None for a single process."""
    alone = ""
    for launcher in LAUNCHERS:
        names = [name for name in (launcher.rank, launcher.world_size) if environment.get(name)]
        if len(names) == 2:
            return launcher
        if names and launcher.started:
            alone = (
                f"expected {launcher.rank} and {launcher.world_size} together in the environment, as {launcher.name} "
                f"sets them, got {names[0]}={environment[names[0]]} alone; pass rank= and world_size="
            )
    if alone:  # every process would take the part of one rank
        raise UsageError(alone)
    return None


def _place_of_lightning(environment: Mapping[str, str]) -> ProcessRank:
    """Return the rank of a process that knows its number on the node.

    On all nodes but the first, the number of processes per node is needed as well.
    """
    local_rank, node_rank, world_size = (_int(environment, name) for name in LIGHTNING)
    if node_rank and not environment.get("LOCAL_WORLD_SIZE"):
        raise UsageError(
            f"expected to know how many processes each node has, got LOCAL_RANK={local_rank}, NODE_RANK={node_rank} "
            f"and WORLD_SIZE={world_size}, as Lightning sets them; make the loader in the DataModule's "
            "train_dataloader() or after fabric.launch(), or pass rank= and world_size="
        )
    rank = local_rank + (node_rank * _int(environment, "LOCAL_WORLD_SIZE") if node_rank else 0)
    return _checked(rank, world_size, "Lightning", " and ".join(LIGHTNING))


def _place_of(environment: Mapping[str, str], launcher: str, rank: str, world_size: str) -> ProcessRank:
    return _checked(_int(environment, rank), _int(environment, world_size), launcher, f"{rank} and {world_size}")


def _checked(rank: int, world_size: int, launcher: str, names: str) -> ProcessRank:
    if not 0 <= rank < world_size:
        raise UsageError(
            f"expected a rank in 0 … {max(world_size, 1) - 1} from {names}, got {rank} of {world_size}; pass rank= and "
            "world_size="
        )
    return ProcessRank(rank, world_size, f"{launcher}'s {names}")


def _int(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise UsageError(
            f"expected {name} to be an int, got {environment[name]!r}; pass rank= and world_size="
        ) from None
