"""`pack_on_ray`: one Ray task for each missing shard; the pack has the bytes of one machine's run.

The driver writes the plan, which all tasks read from the pack's folder: a node that sees another folder than the driver
fails at once. Ray places the tasks, and runs the tasks of lost nodes again.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from headrace.data import Dataset, shard_name
from headrace.errors import HeadraceError, NotFoundError, ReadError
from headrace.pack.conversion import ImageConverter, PackOptions
from headrace.pack.members import SampleReader
from headrace.pack.pack_folder import PackFolder
from headrace.pack.packing import PackPlan, PackReport, expect_target, found_plan, sample_pool, write_plan
from headrace.pack.shard_files import write_shard
from headrace.system import connect_to_ray

_LEAST_TASKS = 64
"""Tasks handed to Ray at once, at least: some wait, so that a cluster that grows by demand sees it."""
_ADVICE = "Source and target must be reachable from all nodes: a shared folder, or a store"


def pack_on_ray(
    dataset: Dataset,
    to: str | os.PathLike[str],
    options: PackOptions,
    *,
    address: str = "auto",
    tick: Callable[[int, int, int], None] | None = None,
    store_options: Mapping[str, Any] | None = None,
) -> PackReport:
    """Write the shards that are not there yet as tasks of a Ray cluster, of one core each; otherwise as `pack` does.

    `address` is the cluster's, as `ray.init` takes it, unless this process is connected already. The source and `to`
    must be reachable from all nodes, which need headrace. `tick` is called after each shard. Raises as `pack` does, and
    HeadraceError for a node that cannot read the source, and for a shard that failed after Ray's retries.
    """
    begun_s = time.monotonic()
    reader, folder = SampleReader(dataset, ImageConverter(options)), PackFolder.of(to, store_options)
    expect_target(reader, folder)
    with folder.locked(0, 1), _connected(address) as ray:
        plan = found_plan(reader, folder)
        if plan is None:
            with sample_pool(reader.dataset, reader.files, None) as pool:
                plan = write_plan(reader, folder, pool)
        shards = range(plan.shards)
        missing = plan.missing(folder, shards)
        # Pickled here: Ray would hand the arrays over read-only, and sizes of objects are noted in some of them.
        reader.keys  # noqa: B018  # once, for all tasks
        job = ray.put(pickle.dumps((reader, folder)))
        _run_tasks(ray, job, missing, plan, tick)
    folder.index([shard_name(shard) for shard in shards])
    return plan.report(folder, shards, written=len(missing), begun_s=begun_s)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Yield `ray`, connected to a cluster. Raises UsageError."""
    ray, is_own = connect_to_ray("--ray", address, logs_tasks=False)
    try:
        yield ray
    finally:
        if is_own:
            ray.shutdown()


def _run_tasks(
    ray: Any, job: Any, missing: list[int], plan: PackPlan, tick: Callable[[int, int, int], None] | None
) -> None:
    """Write the missing shards as tasks. After the first error, begin no further one. Raises HeadraceError.

    Nothing is cancelled: Ray 2.60 may abort the process if a task ends meanwhile.
    """
    task, waiting = ray.remote(num_cpus=1)(_write_missing), iter(missing)
    running: dict[Any, int] = {}
    total, written = len(plan.order), 0
    done = total - sum(map(plan.samples, missing))
    try:
        while True:
            most = max(_LEAST_TASKS, 2 * int(ray.cluster_resources().get("CPU", 0)))
            running |= {task.remote(job, shard): shard for shard in islice(waiting, max(0, most - len(running)))}
            if not running:
                return
            (ready,), _ = ray.wait(list(running))
            done += plan.samples(running.pop(ready))
            written += ray.get(ready)
            if tick is not None:
                tick(done, total, written)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, HeadraceError):
            raise cause from error
        raise HeadraceError(f"a task of Ray failed: {error}\nRun it again: complete shards stay") from error


def _write_missing(job: bytes, shard: int) -> int:
    """Write a shard on a node, and return its bytes. Raises HeadraceError."""
    reader, folder = pickle.loads(job)
    with _named_node():
        for name in reader.files:
            reader.read(name, 0)
        plan = found_plan(reader, folder)
        if plan is None:
            raise NotFoundError(f"{folder}: expected the plan that the driver wrote, got none")
        with sample_pool(reader.dataset, reader.files, None, cores=1) as pool:
            return write_shard(reader, plan.order_of(shard), folder, shard_name(shard), pool, lambda *_: None)


@contextmanager
def _named_node() -> Iterator[None]:
    try:
        yield
    except (NotFoundError, ReadError) as error:
        raise HeadraceError(f"node {socket.gethostname()}: {error}. {_ADVICE}") from error
