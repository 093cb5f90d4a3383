"""`RayWorkers`, the value of `workers=`, its checks, and the connection to a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments
from headrace.loader.recipe import Recipe
from headrace.system import ProcessOrigin, connect_to_ray, load_ray

CALLS = 2
"""Steps that an actor makes at a time: one is read, sent or near its end while the other keeps the cores at work."""


@dataclass(frozen=True, kw_only=True)
class RayWorkers(KnownArguments):
    """Ray actors that make a Loader's batches on other machines.

    `actors`          number of actors of this rank; default: as many as the CPUs of Ray's other nodes allow, shared by
                      the ranks
    `cpus_per_actor`  CPUs that Ray reserves for each actor, and the actor's native threads
    `address`         address of the cluster, unless the program is connected to Ray; "auto" finds a running one
    """

    actors: int | None = None
    cpus_per_actor: int = 1
    address: str = "auto"

    def __post_init__(self) -> None:
        for name, value in (("actors", self.actors), ("cpus_per_actor", self.cpus_per_actor)):
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"RayWorkers: expected {name} to be an int of at least 1, got {value!r}")


Workers: TypeAlias = Literal["ray"] | RayWorkers | None


class IdleActors(list[Any]):
    """Handles of actors of passes that came to their end, for the next passes of any loader on the cluster.

    They end with the last loader, and so this list.
    """

    def __del__(self) -> None:
        for handle in self:
            kill(handle)


def kill(handle: Any) -> None:
    """End an actor, also one that has not started."""
    with suppress(Exception):  # Ray itself may be gone
        ray = load_ray("workers")
        if ray.is_initialized():  # else `kill` would start a Ray
            ray.kill(handle)


_idle: WeakValueDictionary[tuple[object, ...], IdleActors] = WeakValueDictionary()


@dataclass(frozen=True)
class RayCluster:
    """Connection to Ray, and the number of actors of one loader."""

    actors: int
    cpus_per_actor: int
    idle: IdleActors
    origin: ProcessOrigin = field(default_factory=ProcessOrigin)

    def window(self, prefetch: int | None) -> int:
        """Return the number of steps in flight or ready: `prefetch`, or enough for all actors and one ready step."""
        return CALLS * self.actors + 1 if prefetch is None else prefetch


def connect(workers: Workers, *, world_size: int, refused: Mapping[str, object]) -> RayCluster | None:
    """Connect to the cluster of a Loader's `workers=`; return None without one.

    `refused`: arguments that do not go with other machines, by name; None or 0 if the user left them out. Raises
    UsageError.
    """
    if workers is None:
        return None
    if workers != "ray" and not isinstance(workers, RayWorkers):
        raise UsageError(f"workers: expected 'ray', hr.RayWorkers(…) or None, got {workers!r}")
    for name, value in refused.items():
        if value:
            raise UsageError(f"workers: expected no {name}= with it, {_WHY[name]}, got {name}={value!r}; leave one out")
    given = RayWorkers() if workers == "ray" else workers
    ray, _ = connect_to_ray("workers", given.address)
    actors = given.actors
    if actors is None:
        actors = max(1, _actors_elsewhere(ray, given.cpus_per_actor) // world_size)
    here = ray.get_runtime_context()
    idle = _idle.setdefault((here.gcs_address, here.get_job_id(), given.cpus_per_actor), IdleActors())
    return RayCluster(actors, given.cpus_per_actor, idle)


_WHY = {
    "cache": "as the cache would be on this machine",
    "map_workers": "as the actors are processes already",
    "decode": "as the actors' machines decode",
}


def check_travels(recipe: Recipe) -> None:
    """Raise UsageError for functions of the user that cannot be pickled."""
    for name, function in (("map", recipe.map), ("batch_map", recipe.batch_map)):
        try:
            load_ray("workers").cloudpickle.dumps(function)
        except Exception as error:  # what the function refers to may raise anything
            raise UsageError(
                f"{name}: expected a function that can be pickled with workers=, got {function!r}, which cannot "
                f"({type(error).__name__}: {error}); make what it refers to inside the function"
            ) from error


def _actors_elsewhere(ray: Any, cpus: int) -> int:
    """Return how many actors the other nodes have CPUs for; or this node if there is no other."""
    here = ray.get_runtime_context().get_node_id()
    room = {node["NodeID"]: int(node["Resources"].get("CPU", 0) // cpus) for node in ray.nodes() if node["Alive"]}
    return sum(count for node, count in room.items() if node != here) or room.get(here, 0)
