"""What does opening tars in a store cost, without an index and with a merged one: requests, bytes, CPU, time?

    python benchmarks/remote_index.py [--tars 100] [--members 10000] [--bytes 20000] [--latency-ms 20] [--processes 8]

One tar of that many members, headers with holes between them, is served under many names by nginx, behind a proxy with
latency. Times are of this machine, servers and proxy included; counts are the proxy's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from remote_servers import Link, LinkProxy, served
from tar_scale import write_tar

OPENING = """
import sys, time
import headrace as hr
began, cpu = time.perf_counter(), time.process_time()
opened = hr.open(sys.argv[1], index=sys.argv[2] or None)
print(f"{len(opened):,} samples, {time.perf_counter() - began:.2f} s, {time.process_time() - cpu:.2f} s of CPU")
"""


def show(what: str, proxy: LinkProxy, commands: list[list[str]], cache: str) -> None:
    before, env = proxy.counts(), {**os.environ, "HEADRACE_CACHE": cache}
    began = time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for command in commands]
    said = [process.communicate()[0].strip().splitlines()[-1] for process in running]
    took, passed = time.perf_counter() - began, proxy.counts().since(before)
    print(f"{what}: {passed.requests:,} requests, {passed.bytes:,} bytes, {took:.1f} s with starting; {said[-1]}")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--tars", type=int, default=100)
    ask.add_argument("--members", type=int, default=10_000)
    ask.add_argument("--bytes", type=int, default=20_000, help="of each member")
    ask.add_argument("--latency-ms", type=float, default=20)
    ask.add_argument("--processes", type=int, default=8)
    options = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        write_tar(root / "000.tar", options.members, options.bytes)
        for number in range(1, options.tars):
            os.link(root / "000.tar", root / f"{number:03}.tar")
        (Path(folder) / "nginx").mkdir()
        with served(root, Path(folder) / "nginx") as (_, proxy):
            proxy.change(Link(latency_s=options.latency_ms / 1e3))
            tars = f"{proxy.endpoint}/{{000..{options.tars - 1:03}}}.tar"
            index = str(root / "index.headrace")
            opening = [sys.executable, "-c", OPENING, tars]
            merging = [
                sys.executable,
                "-c",
                "from headrace.tools.command_line import main; main()",
                "index",
                tars,
                "--to",
                index,
            ]
            show("no index", proxy, [[*opening, ""]], f"{folder}/first")
            show("merging", proxy, [merging], f"{folder}/first")
            at = f"{proxy.endpoint}/index.headrace"
            show("merged index", proxy, [[*opening, at]], f"{folder}/second")
            each = [[*opening, at]] * options.processes
            show(f"merged index, {options.processes} processes", proxy, each, f"{folder}/third")


if __name__ == "__main__":
    main()
