"""Rate of `workers="ray"` with two nodes of one core on this machine, beside the local loader on two threads.

    python benchmarks/ray_workers.py PHOTOS [ROUNDS]

All share this machine's cores, so the figure is what the way through Ray costs, not what other machines add.
"""

from __future__ import annotations

import statistics
import sys
import time

import ray
from ray.cluster_utils import Cluster

import headrace as hr

STORE = {"object_store_memory": 300 << 20}


def measure(loader: hr.Loader) -> tuple[float, float]:
    """Return images/s of an epoch, and the CPU time of this process in ms an image."""
    began, cpu_s = time.perf_counter(), time.process_time()
    images = sum(len(batch["label"]) for batch in loader)
    return images / (time.perf_counter() - began), (time.process_time() - cpu_s) / images * 1e3


def main(photos: str, rounds: int = 5) -> None:
    options = {"view": hr.RandomResizedCrop(224, flip=0.5), "batch_size": 64, "shuffle": True, "output": "numpy"}
    loaders = {"ray": hr.Loader(photos, workers="ray", **options), "local": hr.Loader(photos, threads=2, **options)}
    for loader in loaders.values():
        for _ in range(8):  # actors take seconds to start
            measure(loader)
    found = {name: [] for name in loaders}
    for number in range(rounds):
        for name in sorted(loaders, reverse=bool(number % 2)):
            found[name].append(measure(loaders[name]))
    for name, each in found.items():
        rate, cpu_ms = (statistics.median(values) for values in zip(*each, strict=True))
        print(f"{name:6} {rate:7,.0f} images/s, {cpu_ms:.2f} ms of this process an image")
    print(loaders["ray"].stats().ray)


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **STORE})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **STORE)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        main(sys.argv[1], *map(int, sys.argv[2:]))
    finally:
        ray.shutdown()
        cluster.shutdown()
