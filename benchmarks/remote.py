"""A Loader over a store with latency beside the same tars on this machine, and beside other loaders over that store.

    python benchmarks/remote.py PHOTOS [--peers PYTHON] [--only PART …] [--tars 100] [--members 100] [--rounds 1]
                                [--threads 1]

nginx serves the tars on loopback (install nginx-light) behind the tests' LinkProxy, which adds the latency; both run on
the same cores as what is measured, and their CPU time is stated. Each run is a process of its own, runs are
interleaved, and medians are printed, as tables of Markdown. PHOTOS come from benchmarks/make_photos.py. PARTS:

    throughput   images/s against local files, requests, CPU time by stage, hit rate
    limited      bandwidth limits: the share of the link that is used
    stragglers   1 % of requests at 2 s, with and without second requests, at full speed and at a training step's pace
    first        first batch of a cold process with the index there, and opening without an index
    memory       resident memory over 20 epochs of a small set
    peers        webdataset, litdata and streaming, in the Python given by --peers
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from harness import arguments, head, in_turns, row
from remote_run import BATCH
from remote_servers import Link, make_tars, pattern, served

HERE = Path(__file__).parent
BUCKET, DEADLINE_S, ORDERS, LATENCIES_S = "photos", 300, ("global", "windowed"), (0.02, 0.1)


def link(latency_s=0.0, **more):
    """Return a link whose jitter is a quarter of its latency."""
    return Link(latency_s=latency_s, jitter_s=latency_s / 4, **more)


class Bench:
    """The tars, the servers, and runs over them."""

    def __init__(self, args, scratch, nginx, proxy):
        self.args, self.scratch, self.nginx, self.proxy = args, scratch, nginx, proxy
        self.tars, self.images = args.data / BUCKET, args.tars * args.members
        self.data_bytes = sum(path.stat().st_size for path in self.tars.iterdir())

    def run(self, over, **spec):
        """Run once over a link, or over the files here where it is None; and return the figures of the last epoch."""
        tars = pattern(self.args.tars)
        if over is None:
            spec["source"] = str(self.tars / tars)
        else:
            self.proxy.change(over)
            spec |= {"source": f"s3://{BUCKET}/{tars}", "endpoint": self.proxy.endpoint}
        common = {"window_blocks": self.args.window_blocks, "threads": self.args.threads}
        spec = {"indices": str(self.scratch / "indices"), **common, **spec}
        before, nginx_s = self.proxy.counts(), self.nginx_s()
        found = last_line(sys.executable, HERE / "remote_run.py", json.dumps(spec))
        passed, epochs = self.proxy.counts().since(before), found.pop("epochs")
        done = sum(each["images"] for each in epochs) + spec.get("warm_epochs", 1) * self.images
        servers_s = passed.cpu_s + self.nginx_s() - nginx_s
        figures = {"server_ms": servers_s / done * 1e3, "server_requests": passed.requests / done, "all": epochs}
        return {**epochs[-1], **found, **figures, "rate": median(each["images"] / each["wall_s"] for each in epochs)}

    def nginx_s(self):
        return sum(self.nginx.cpu_times()[:2])

    def interleaved(self, cases):
        """Run all cases in each round, and return a list of each one's figures."""
        runs = {name: partial(self.run, over, **spec) for name, (over, spec) in cases.items()}
        return in_turns(runs, self.args.rounds)


def last_line(*command, **environment):
    """Run a command, and return the JSON of its last line."""
    settings = {"capture_output": True, "text": True, "check": False, "env": os.environ | environment}
    done = subprocess.run(list(map(str, command)), timeout=DEADLINE_S, **settings)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(lines[-1])


def middle(runs, get, text="{:,.0f}"):
    """Format the median over the runs of what `get` returns; nothing if it is None, or missing."""
    values = [run.get(get) if isinstance(get, str) else get(run) for run in runs]
    return "" if None in values else text.format(median(values))


def table(*heads, rows):
    print(head("", *heads))
    for cells in rows:
        print(row(*cells))
    print(flush=True)


def throughput(bench):
    cases = {"local files": (None, {})}
    for latency_s in LATENCIES_S:
        for order in ORDERS:
            for share in (0.0, 0.25):
                name = f"{order}, {latency_s * 1e3:.0f} ms" + (", cache of 25 %" if share else "")
                cache = f"ram:{int(bench.data_bytes * share / 1e6)}MB" if share else None
                cases[name] = link(latency_s), {"order": order, "cache": cache, "warm_epochs": int(share > 0)}
    found = bench.interleaved(cases)
    local_ms = median(run["cpu_ms"]["feed"] for run in found["local files"])

    def fetching_ms(run):
        """Return the CPU ms an image of obstore's threads, the fetching thread, and what feeding takes more."""
        cpu = run["cpu_ms"]
        return cpu.get("store", 0.0) + cpu.get("fetch", 0.0) + max(0.0, cpu["feed"] - local_ms)

    rows = []
    for name, runs in found.items():
        ratios = [run["rate"] / local["rate"] for run, local in zip(runs, found["local files"], strict=True)]
        rows.append((
            name, middle(runs, "rate"), f"{median(ratios):.0%}",
            middle(runs, lambda run: run["server_requests"] or None, "{:.3f}"),
            middle(runs, lambda run: run.get("fetched_mb") and run["fetched_mb"] / run["wanted_mb"], "{:.2f}"),
            middle(runs, lambda run: run["cpu_ms"]["decode"], "{:.3f}"), middle(runs, fetching_ms, "{:.3f}"),
            middle(runs, lambda run: fetching_ms(run) / run["cpu_ms"]["decode"], "{:.0%}"),
            middle(runs, "server_ms", "{:.3f}"),
            middle(runs, lambda run: run["server_ms"] / (run["server_ms"] + sum(run["cpu_ms"].values())), "{:.0%}"),
            middle(runs, "hit_rate", "{:.0%}"),
            middle(runs, lambda run: run.get("stall_s") and run["stall_s"] / run["wall_s"], "{:.0%}"),
        ))  # fmt: skip
    print(f"## Throughput\n\n{bench.args.tars} tars, {bench.images:,} photographs, {bench.data_bytes / 1e6:,.0f} MB, "
          "RandomResizedCrop(224) and flip, batches of 256; "
          f"windows of {bench.args.window_blocks} blocks of 8 MB\n")  # fmt: skip
    table("images/s", "of local", "requests an image, as the link counts", "bytes read of wanted", "decoding, CPU ms",
          "fetching, CPU ms", "of decoding", "server, CPU ms", "server's share", "hits", "waits for the store",
          rows=rows)  # fmt: skip


def limited(bench):
    cases = {"local files": (None, {"warm_epochs": 0})}
    for rate in (50e6, 100e6):
        for order in ORDERS:
            over = link(LATENCIES_S[0], bandwidth=rate)
            cases[f"{order}, {rate / 1e6:.0f} MB/s"] = over, {"order": order, "warm_epochs": 0}
    streams = link(LATENCIES_S[0], stream_bandwidth=10e6)
    cases["windowed, 10 MB/s a connection"] = streams, {"order": "windowed", "warm_epochs": 0}
    print(f"## Limited bandwidth, {LATENCIES_S[0] * 1e3:.0f} ms\n")
    table("images/s", "MB/s of samples", "MB/s read", rows=[
        (name, middle(runs, "rate"), *(middle(runs, lambda run, kind=kind: run.get(kind) and run[kind] / run["wall_s"])
                                       for kind in ("wanted_mb", "fetched_mb")))
        for name, runs in bench.interleaved(cases).items()
    ])  # fmt: skip


def stragglers(bench):
    """Run as fast as batches come, then a second epoch of training whose steps take twice as long: waits are stalls."""
    slow, cases = link(LATENCIES_S[0], slow_share=0.01, slow_s=2.0), {}
    for order in ORDERS:
        spec = {"order": order, "warm_epochs": 0}
        cases[f"{order}, none slow"] = link(LATENCIES_S[0]), spec
        cases[f"{order}, 1 % at 2 s"] = slow, spec
        cases[f"{order}, 1 % at 2 s, no second requests"] = slow, {**spec, "hedge": False}
    found = bench.interleaved(cases)
    steps = {order: 2 * BATCH / median(run["rate"] for run in found[f"{order}, none slow"]) for order in ORDERS}
    paced = bench.interleaved({
        name: (over, {**spec, "step_s": steps[spec["order"]], "warm_epochs": 1}) for name, (over, spec) in cases.items()
    })  # fmt: skip
    print(f"## 1 % of requests take 2 s, {LATENCIES_S[0] * 1e3:.0f} ms\n")
    table("images/s", "waits for the store", "requests", "sent twice", "stall of paced training", "longest, ms", rows=[
        (name, middle(runs, "rate"), middle(runs, lambda run: run["stall_s"] / run["wall_s"], "{:.1%}"),
         middle(runs, "requests"), middle(runs, "hedges"),
         middle(paced[name], lambda run: run["waited_s"] / run["wall_s"], "{:.1%}"),
         middle(paced[name], lambda run: run["longest_s"] * 1e3))
        for name, runs in found.items()
    ])  # fmt: skip


def first(bench):
    rows = []
    for latency_s in LATENCIES_S:
        for order in ORDERS:
            spec = {"order": order, "warm_epochs": 0, "steps": 8}
            bench.run(link(), **spec)  # the index is there
            runs = [bench.run(link(latency_s), **spec) for _ in range(bench.args.rounds)]
            slow = [bench.run(link(latency_s, bandwidth=100e6), **spec)]
            begun = (middle(each, lambda run: run["open_s"] + run["first_s"], "{:.2f}") for each in (runs, slow))
            rows.append((f"{order}, {latency_s * 1e3:.0f} ms", middle(runs, "open_s", "{:.2f}"), *begun))
        alone = bench.run(link(latency_s), indices=str(bench.scratch / f"fresh-{latency_s}"), warm_epochs=0, steps=1)
        rows.append((f"without an index, {latency_s * 1e3:.0f} ms", f"{alone['open_s']:.2f}", "", ""))
    print(f"## First batch of a new process, seconds from `hr.open` on, windows of {bench.args.window_blocks} blocks\n")
    table("opened", "first batch", "at 100 MB/s", rows=rows)


def memory(bench):
    spec = {"samples": min(bench.images, 2_000), "warm_epochs": 0, "epochs": 20}
    runs = {
        "windowed, 20 ms": bench.run(link(LATENCIES_S[0]), order="windowed", **{**spec, "window_blocks": 8}),
        "local files": bench.run(None, **spec),
    }
    print(f"## Memory, {spec['samples']:,} photographs, windows of 8 blocks of 8 MB, 20 epochs\n")
    table("resident MB after epoch 2", "epoch 11", "epoch 20", "peak", rows=[
        (name, *(f"{run['all'][at]['rss_mb']:,.0f}" for at in (1, 10, 19)), f"{run['peak_mb']:,.0f}")
        for name, run in runs.items()
    ])  # fmt: skip


def peers(bench):
    if bench.args.peers is None:
        print("## Beside other loaders\n\nNot run: give --peers PYTHON, which has them.\n")
        return
    script = [bench.args.peers, HERE / "remote_peers.py"]
    for name in ("litdata", "streaming"):
        if not (bench.args.data / name).exists():
            last_line(*script, "prepare", name, bench.tars, bench.args.data / name)

    def own():
        run = bench.run(link(LATENCIES_S[0]), order="windowed", warm_epochs=0)
        return {**run, "cpu_ms": sum(run["cpu_ms"].values()), "version": ""}

    def peer(name):
        keys = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
        store = {"AWS_ENDPOINT_URL": bench.proxy.endpoint, "S3_ENDPOINT_URL": bench.proxy.endpoint}
        bench.proxy.change(link(LATENCIES_S[0]))
        with tempfile.TemporaryDirectory(dir=bench.scratch, ignore_cleanup_errors=True) as scratch:
            return last_line(*script, "run", name, pattern(bench.args.tars), scratch, **keys, **store)

    cases = {name: partial(peer, name) for name in ("webdataset", "litdata", "streaming")}
    found = in_turns({"headrace": own, **cases}, bench.args.rounds)
    best = max(median(run["rate"] for run in found[name]) for name in cases)
    print(f"## Beside other loaders, {LATENCIES_S[0] * 1e3:.0f} ms, no cache before, 2 workers or threads\n")
    table("images/s", "of the best of them", "CPU ms an image", "first batch, s", rows=[
        (f"{name} {runs[0]['version']}".strip(), middle(runs, "rate"),
         middle(runs, lambda run: run["rate"] / best, "{:.2f}"), middle(runs, "cpu_ms", "{:.3f}"),
         middle(runs, "first_s", "{:.2f}"))
        for name, runs in found.items()
    ])  # fmt: skip


PARTS = {part.__name__: part for part in (throughput, limited, stragglers, first, memory, peers)}


def main():
    args = arguments(
        __doc__, "photos", peers=Path, tars=100, members=100, rounds=1, window_blocks=32,
        only={"nargs": "+", "choices": PARTS, "default": list(PARTS)},
        threads={"type": int, "help": "threads that decode; with 1, another core fetches and serves"},
        data={"type": Path, "help": "folder that keeps the tars for the next run"},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        args.data = (args.data or scratch / "data").absolute() / f"{args.tars}x{args.members}"
        make_tars(args.photos, args.data / BUCKET, args.tars, args.members)
        with served(args.data, scratch / "nginx") as (nginx, proxy):
            bench, began_s = Bench(args, scratch, nginx, proxy), time.monotonic()
            for part in args.only:
                PARTS[part](bench)
                print(f"{part}: {time.monotonic() - began_s:.0f} s since the start", file=sys.stderr)


if __name__ == "__main__":
    main()
