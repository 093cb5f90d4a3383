"""A store on loopback for cases: photos as objects and in tars, behind a link with latency, in processes of its own.

`python store_link.py LATENCY_S BANDWIDTH` prints the link's address and serves until it is terminated. It is no part of
the training: a store is another machine.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PHOTOS, SHARDS, SIDE = 160, 4, 160


@contextmanager
def stored_photos(latency_s: float = 0.0, bandwidth: float = 0.0) -> Iterator[str]:
    """Serve them meanwhile: `http://127.0.0.1:PORT`, the bucket is `bucket`."""
    command = [sys.executable, __file__, str(latency_s), str(bandwidth)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()  # its link ends with it


def main() -> None:
    sys.path.append(str(Path(__file__).resolve().parents[2] / "remote"))
    from link_proxy import Link, LinkProxy
    from servers import running_store

    latency_s, bandwidth = map(float, sys.argv[1:])
    with running_store(_objects()) as store:
        link = LinkProxy(store.port, Link(latency_s, bandwidth=bandwidth or None))
        print(link.endpoint, flush=True)
        signal.pause()


def _objects() -> dict[str, bytes]:
    import numpy as np
    from PIL import Image

    random, objects = np.random.default_rng(0), dict[str, bytes]()
    for number in range(PHOTOS):
        into = io.BytesIO()
        pixels = random.integers(0, 255, (SIDE // 8, SIDE // 8, 3), np.uint8)
        Image.fromarray(pixels).resize((SIDE, SIDE)).save(into, "JPEG", quality=95)
        objects[f"photos/{number:05}.jpg"] = into.getvalue()
    for shard in range(SHARDS):
        into = io.BytesIO()
        with tarfile.open(fileobj=into, mode="w") as tar:
            for number in range(shard, PHOTOS, SHARDS):
                for end, data in ((".jpg", objects[f"photos/{number:05}.jpg"]), (".cls", str(number % 10).encode())):
                    member = tarfile.TarInfo(f"{number:05}{end}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        objects[f"shards/train-{shard:06}.tar"] = into.getvalue()
    return objects


if __name__ == "__main__":
    main()
