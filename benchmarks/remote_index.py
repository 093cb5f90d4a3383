"""What does opening tars in a store cost, without an index and with a merged one: requests, bytes, CPU, time?

    python benchmarks/remote_index.py [--tars 100] [--members 10000] [--bytes 20000] [--latency-ms 20] [--processes 8]

One tar of that many members, headers with holes between them, is served under many names by nginx, behind a proxy with
latency. Times are of this machine, servers and proxy included; counts are the proxy's.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import HEADRACE, arguments
from remote_servers import Link, served
from tar_scale import write_tar

OPENING = """
import sys, time
import headrace as hr
began, cpu = time.perf_counter(), time.process_time()
opened = hr.open(sys.argv[1], index=sys.argv[2] or None)
print(f"{len(opened):,} samples, {time.perf_counter() - began:.2f} s, {time.process_time() - cpu:.2f} s of CPU")
"""


def show(what, proxy, command, cache, processes=1):
    before, env, began = proxy.counts(), {**os.environ, "HEADRACE_CACHE": cache}, time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(processes)]
    said = [process.communicate()[0].strip().splitlines()[-1] for process in running]
    took, passed = time.perf_counter() - began, proxy.counts().since(before)
    print(f"{what}: {passed.requests:,} requests, {passed.bytes:,} bytes, {took:.1f} s with starting; {said[-1]}")


def main():
    size = {"type": int, "default": 20_000, "help": "of each member"}
    args = arguments(__doc__, tars=100, members=10_000, bytes=size, latency_ms=20.0, processes=8)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        write_tar(root / "000.tar", args.members, args.bytes)
        for number in range(1, args.tars):
            os.link(root / "000.tar", root / f"{number:03}.tar")
        with served(root, Path(folder, "nginx")) as (_, proxy):
            proxy.change(Link(latency_s=args.latency_ms / 1e3))
            tars, at = f"{proxy.endpoint}/{{000..{args.tars - 1:03}}}.tar", f"{proxy.endpoint}/index.headrace"
            opening = [sys.executable, "-c", OPENING, tars]
            merging = [*HEADRACE, "index", tars, "--to", str(root / "index.headrace")]
            show("no index", proxy, [*opening, ""], f"{folder}/first")
            show("merging", proxy, merging, f"{folder}/first")
            show("merged index", proxy, [*opening, at], f"{folder}/second")
            name = f"merged index, {args.processes} processes"
            show(name, proxy, [*opening, at], f"{folder}/third", args.processes)


if __name__ == "__main__":
    main()
