"""Rate of `workers="ray"` with two nodes of one core on this machine, beside the local loader on two threads.

    python benchmarks/ray_workers.py PHOTOS [--rounds 5]

All share this machine's cores, so the figure is what the way through Ray costs, not what other machines add.
"""

from functools import partial

import ray
from harness import arguments, epoch, in_turns, medians
from ray.cluster_utils import Cluster

import headrace as hr

STORE = {"object_store_memory": 300 << 20}


def measure(photos, rounds):
    options = {"view": hr.RandomResizedCrop(224, flip=0.5), "batch_size": 64, "shuffle": True, "output": "numpy"}
    photos = str(photos)
    loaders = {"ray": hr.Loader(photos, workers="ray", **options), "local": hr.Loader(photos, threads=2, **options)}
    found = in_turns({name: partial(epoch, each) for name, each in loaders.items()}, rounds, warm_up=8)  # actors start
    images = loaders["local"].samples
    for name, (wall_s, cpu_s) in medians(found).items():
        print(f"{name:6} {images / wall_s:7,.0f} images/s, {cpu_s / images * 1e3:.2f} ms of this process an image")
    print(loaders["ray"].stats().ray)


def main():
    args = arguments(__doc__, "photos", rounds=5)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **STORE})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **STORE)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        measure(args.photos, args.rounds)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
