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

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from remote_run import BATCH
from remote_servers import Link, make_tars, pattern, served

HERE = Path(__file__).parent
BUCKET = "photos"
DEADLINE_S = 300
LATENCIES_S = (0.02, 0.1)
PARTS = ("throughput", "limited", "stragglers", "first", "memory", "peers")


def link(latency_s=0.0, **more):
    """A link whose jitter is a quarter of its latency."""
    return Link(latency_s=latency_s, jitter_s=latency_s / 4, **more)


class Bench:
    """The tars, the servers, and runs over them."""

    def __init__(self, args, scratch, nginx, proxy):
        self.args, self.scratch, self.nginx, self.proxy = args, scratch, nginx, proxy
        self.data_bytes = sum(path.stat().st_size for path in self.tars.iterdir())

    @property
    def tars(self):
        return self.args.data / BUCKET

    @property
    def images(self):
        return self.args.tars * self.args.members

    def run(self, over, **spec):
        """Run once over a link, or over the files here where it is None; and return the figures of the last epoch."""
        if over is None:
            spec["source"] = str(self.tars / pattern(self.args.tars))
        else:
            self.proxy.change(over)
            spec |= {"source": f"s3://{BUCKET}/{pattern(self.args.tars)}", "endpoint": self.proxy.endpoint}
        spec = {
            "indices": str(self.scratch / "indices"),
            "window_blocks": self.args.window_blocks,
            "threads": self.args.threads,
            **spec,
        }
        before, nginx_s = self.proxy.counts(), self.nginx.cpu_s()
        found = last_line([sys.executable, str(HERE / "remote_run.py"), json.dumps(spec)])
        passed = self.proxy.counts().since(before)
        epochs = found["epochs"]
        done = sum(each["images"] for each in epochs) + spec.get("warm_epochs", 1) * self.images
        server_ms = (passed.cpu_s + self.nginx.cpu_s() - nginx_s) / done * 1e3
        server_requests = passed.requests / done
        rate = statistics.median(each["images"] / each["wall_s"] for each in epochs)
        return {**epochs[-1], "all": epochs, "rate": rate, "server_ms": server_ms, "server_requests": server_requests,
                "open_s": found["open_s"], "peak_mb": found["peak_mb"]}  # fmt: skip

    def interleaved(self, cases, rounds):
        """Run all cases in each round, and return a list of each one's figures."""
        found = defaultdict(list)
        for _ in range(rounds):
            for name, (over, spec) in cases.items():
                found[name].append(self.run(over, **spec))
                print(f"  {name}: {found[name][-1]['rate']:,.0f} images/s", file=sys.stderr)
        return found

    def cache(self, share):
        return f"ram:{int(self.data_bytes * share / 1e6)}MB" if share else None


def last_line(command, **environment):
    """Run a command, and return the JSON of its last line."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env={**os.environ, **environment}
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(lines[-1])


def middle(runs, get):
    values = [get(run) for run in runs]
    return None if any(value is None for value in values) else statistics.median(values)


def fetching_ms(run, local_feed_ms):
    """CPU milliseconds an image of fetching: obstore's threads, the fetching thread, and what feeding takes more."""
    cpu = run["cpu_ms"]
    return cpu.get("store", 0.0) + cpu.get("fetch", 0.0) + max(0.0, cpu["feed"] - local_feed_ms)


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|---|" + "--:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def show(value, text="{:.0%}"):
    return "" if value is None else text.format(value)


def throughput(bench):
    cases = {"local files": (None, {})}
    for latency_s in LATENCIES_S:
        for order in ("global", "windowed"):
            for share in (0.0, 0.25):
                name = f"{order}, {latency_s * 1e3:.0f} ms" + (", cache of 25 %" if share else "")
                cases[name] = (
                    link(latency_s),
                    {"order": order, "cache": bench.cache(share), "warm_epochs": int(share > 0)},
                )
    found = bench.interleaved(cases, bench.args.rounds)
    photographs = f"{bench.args.tars} tars, {bench.images:,} photographs, {bench.data_bytes / 1e6:,.0f} MB"
    print(f"## Throughput\n\n{photographs}, RandomResizedCrop(224) and flip, batches of 256; ", end="")
    print(f"windows of {bench.args.window_blocks} blocks of 8 MB\n")
    local_feed_ms = middle(found["local files"], lambda run: run["cpu_ms"]["feed"])
    rows = []
    for name, runs in found.items():
        ratios = [run["rate"] / local["rate"] for run, local in zip(runs, found["local files"], strict=True)]
        of_decode = middle(runs, lambda run: fetching_ms(run, local_feed_ms) / run["cpu_ms"]["decode"])
        rows.append([
            name, f"{middle(runs, lambda run: run['rate']):,.0f}", f"{statistics.median(ratios):.0%}",
            show(middle(runs, lambda run: run["server_requests"] or None), "{:.3f}"),
            show(middle(runs, lambda run: run.get("fetched_mb") and run["fetched_mb"] / run["wanted_mb"]), "{:.2f}"),
            f"{middle(runs, lambda run: run['cpu_ms']['decode']):.3f}",
            f"{middle(runs, lambda run: fetching_ms(run, local_feed_ms)):.3f}", f"{of_decode:.0%}",
            f"{middle(runs, lambda run: run['server_ms']):.3f}",
            f"{middle(runs, lambda run: run['server_ms'] / (run['server_ms'] + sum(run['cpu_ms'].values()))):.0%}",
            show(middle(runs, lambda run: run["hit_rate"])),
            show(middle(runs, lambda run: run.get("stall_s") and run["stall_s"] / run["wall_s"])),
        ])  # fmt: skip
    table(["", "images/s", "of local", "requests an image, as the link counts", "bytes read of wanted",
           "decoding, CPU ms", "fetching, CPU ms", "of decoding", "server, CPU ms", "server's share", "hits",
           "waits for the store"], rows)  # fmt: skip


def limited(bench):
    cases = {"local files": (None, {"warm_epochs": 0})}
    for rate in (50e6, 100e6):
        for order in ("global", "windowed"):
            cases[f"{order}, {rate / 1e6:.0f} MB/s"] = (
                link(LATENCIES_S[0], bandwidth=rate), {"order": order, "warm_epochs": 0})  # fmt: skip
    cases["windowed, 10 MB/s a connection"] = (
        link(LATENCIES_S[0], stream_bandwidth=10e6), {"order": "windowed", "warm_epochs": 0})  # fmt: skip
    found = bench.interleaved(cases, 1)
    print(f"## Limited bandwidth, {LATENCIES_S[0] * 1e3:.0f} ms\n")
    table(["", "images/s", "MB/s of samples", "MB/s read"], [
        [name, f"{run['rate']:,.0f}", show(run.get("wanted_mb") and run["wanted_mb"] / run["wall_s"], "{:,.0f}"),
         show(run.get("fetched_mb") and run["fetched_mb"] / run["wall_s"], "{:,.0f}")]
        for name, (run,) in found.items()
    ])  # fmt: skip


def stragglers(bench):
    """Run as fast as batches come, then a second epoch of training whose steps take twice as long: waits are stalls."""
    slow = link(LATENCIES_S[0], slow_share=0.01, slow_s=2.0)
    cases = {}
    for order in ("global", "windowed"):
        spec = {"order": order, "warm_epochs": 0}
        cases[f"{order}, none slow"] = link(LATENCIES_S[0]), spec
        cases[f"{order}, 1 % at 2 s"] = slow, spec
        cases[f"{order}, 1 % at 2 s, no second requests"] = slow, {**spec, "hedge": False}
    found = bench.interleaved(cases, bench.args.rounds)
    step_s = {order: 2 * BATCH / middle(found[f"{order}, none slow"], lambda run: run["rate"])
              for order in ("global", "windowed")}  # fmt: skip
    paced = bench.interleaved(
        {
            name: (over, {**spec, "step_s": step_s[spec["order"]], "warm_epochs": 1})
            for name, (over, spec) in cases.items()
        },
        bench.args.rounds,
    )
    print(f"## 1 % of requests take 2 s, {LATENCIES_S[0] * 1e3:.0f} ms\n")
    table(["", "images/s", "waits for the store", "requests", "sent twice", "stall of paced training", "longest, ms"], [
        [name, f"{middle(runs, lambda run: run['rate']):,.0f}",
         f"{middle(runs, lambda run: run['stall_s'] / run['wall_s']):.1%}",
         f"{middle(runs, lambda run: run['requests']):,.0f}", f"{middle(runs, lambda run: run['hedges']):,.0f}",
         f"{middle(paced[name], lambda run: run['waited_s'] / run['wall_s']):.1%}",
         f"{middle(paced[name], lambda run: run['longest_s']) * 1e3:,.0f}"]
        for name, runs in found.items()
    ])  # fmt: skip


def first(bench):
    rows = []
    for latency_s in LATENCIES_S:
        for order in ("global", "windowed"):
            spec = {"order": order, "warm_epochs": 0, "steps": 8}
            bench.run(link(), **spec)  # the index is there
            runs = [bench.run(link(latency_s), **spec) for _ in range(bench.args.rounds)]
            limited = bench.run(link(latency_s, bandwidth=100e6), **spec)
            begun = middle(runs, lambda run: run["open_s"] + run["first_s"])
            rows.append([f"{order}, {latency_s * 1e3:.0f} ms", f"{middle(runs, lambda run: run['open_s']):.2f}",
                         f"{begun:.2f}", f"{limited['open_s'] + limited['first_s']:.2f}"])  # fmt: skip
        fresh = bench.scratch / f"fresh-{latency_s}"
        alone = bench.run(link(latency_s), indices=str(fresh), warm_epochs=0, steps=1)
        rows.append([f"without an index, {latency_s * 1e3:.0f} ms", f"{alone['open_s']:.2f}", "", ""])
    print(f"## First batch of a new process, seconds from `hr.open` on, windows of {bench.args.window_blocks} blocks\n")
    table(["", "opened", "first batch", "at 100 MB/s"], rows)


def memory(bench):
    samples = min(bench.images, 2_000)
    run = bench.run(link(LATENCIES_S[0]), order="windowed", window_blocks=8, samples=samples, warm_epochs=0, epochs=20)
    local = bench.run(None, samples=samples, warm_epochs=0, epochs=20)
    print(f"## Memory, {samples:,} photographs, windows of 8 blocks of 8 MB, 20 epochs\n")
    table(["", "resident MB after epoch 2", "epoch 11", "epoch 20", "peak"], [
        [name, *(f"{each['all'][at]['rss_mb']:,.0f}" for at in (1, 10, 19)), f"{each['peak_mb']:,.0f}"]
        for name, each in (("windowed, 20 ms", run), ("local files", local))
    ])  # fmt: skip


def peers(bench):
    if bench.args.peers is None:
        print("## Beside other loaders\n\nNot run: give --peers PYTHON, which has them.\n")
        return
    bucket = bench.args.data / BUCKET
    for name in ("litdata", "streaming"):
        if not (bench.args.data / name).exists():
            last_line([bench.args.peers, str(HERE / "remote_peers.py"), "prepare", name, str(bucket),
                       str(bench.args.data / name)])  # fmt: skip
    names = ("headrace", "webdataset", "litdata", "streaming")
    found, versions = defaultdict(list), {}
    bench.proxy.change(link(LATENCIES_S[0]))
    for _ in range(bench.args.rounds):
        for name in names:
            if name == "headrace":
                run = bench.run(link(LATENCIES_S[0]), order="windowed", warm_epochs=0)
                found[name].append({**run, "cpu_ms": sum(run["cpu_ms"].values())})
                continue
            scratch = bench.scratch / f"peer-{time.monotonic_ns()}"
            try:
                run = last_line(
                    [bench.args.peers, str(HERE / "remote_peers.py"), "run", name, pattern(bench.args.tars),
                     str(scratch)],
                    AWS_ENDPOINT_URL=bench.proxy.endpoint, S3_ENDPOINT_URL=bench.proxy.endpoint,
                    AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="us-east-1",
                )  # fmt: skip
            except (SystemExit, subprocess.TimeoutExpired) as failure:
                print(f"{name} failed: {str(failure)[-500:]}\n")
                continue
            shutil.rmtree(scratch, ignore_errors=True)
            versions[name] = run["version"]
            found[name].append(run)
            print(f"  {name}: {run['rate']:,.0f} images/s", file=sys.stderr)
    print(f"## Beside other loaders, {LATENCIES_S[0] * 1e3:.0f} ms, no cache before, 2 workers or threads\n")
    best = max(statistics.median(run["rate"] for run in runs) for name, runs in found.items() if name != "headrace")
    table(["", "images/s", "of the best of them", "CPU ms an image", "first batch, s"], [
        [f"{name} {versions.get(name, '')}".strip(), f"{middle(runs, lambda run: run['rate']):,.0f}",
         f"{middle(runs, lambda run: run['rate']) / best:.2f}",
         f"{middle(runs, lambda run: run['cpu_ms']):.3f}", f"{middle(runs, lambda run: run['first_s']):.2f}"]
        for name, runs in found.items()
    ])  # fmt: skip


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--peers", metavar="PYTHON")
    ask.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    ask.add_argument("--tars", type=int, default=100)
    ask.add_argument("--members", type=int, default=100)
    ask.add_argument("--rounds", type=int, default=1, help="interleaved; medians are printed")
    ask.add_argument("--window-blocks", type=int, default=32)
    ask.add_argument("--threads", type=int, help="threads that decode; with 1, another core fetches and serves")
    ask.add_argument("--data", type=Path, help="folder that keeps the tars for the next run")
    args = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        args.data = (args.data or scratch / "data").absolute() / f"{args.tars}x{args.members}"
        make_tars(args.photos, args.data / BUCKET, args.tars, args.members)
        with served(args.data, scratch / "nginx") as (nginx, proxy):
            bench = Bench(args, scratch, nginx, proxy)
            began_s = time.monotonic()
            for part in args.only:
                globals()[part](bench)
                print(f"{part}: {time.monotonic() - began_s:.0f} s since the start", file=sys.stderr)


if __name__ == "__main__":
    main()
