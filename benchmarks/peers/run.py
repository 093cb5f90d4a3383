"""Headrace beside its peers, each run a process of its own; every finished run is kept, and a second call goes on.

    python run.py throughput PHOTOS --environment DIR [--rounds 3] [--tasks train-uint8 …] [--peers dali …]
                  [--counted 24]
    python run.py start-up PHOTOS --environment DIR [--rounds 3] [--peers dali …]

throughput   one shuffled pass over so many photographs that 6 batches are dropped and 24 counted. Rounds are
             interleaved: own, peer, own, next peer, …
start-up     the first batch over 1,000,000 tiny JPEGs, and the memory over 20 batches

DIR is the peers' environment as install.sh makes it, with DIR-ffcv beside it. Results go to WORK/results.json; what
loaders need in another form is converted into WORK once. page.py and chart.py turn the results into a page.
"""

import argparse
import fcntl
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from dataset import long_folder, million_folder, originals
from launch import FailedError, launch
from registry import BY_NAME, OWN, PEERS
from results import Results
from task import TASKS, WORKERS

from headrace.tools.bench.comparison import environment

WARM = 6
START_UP_BATCHES = 20
RUN_S, START_UP_S, PREPARE_S = 300, 900, 3600


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("what", choices=["throughput", "start-up"])
    ask.add_argument("photos", type=Path)
    ask.add_argument("--environment", type=Path, required=True)
    ask.add_argument("--work", type=Path, default=Path(".cache/peers-work"))
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    ask.add_argument("--peers", nargs="+", choices=[peer.name for peer in PEERS], default=[peer.name for peer in PEERS])
    ask.add_argument("--counted", type=int, default=24, help="batches; with another number, give another --work")
    args = ask.parse_args()
    peers = [BY_NAME[name] for name in args.peers]
    with alone(args.work):
        bench = Bench(args.photos, args.work, args.environment)
        if args.what == "throughput":
            bench.throughput(peers, [TASKS[name] for name in args.tasks], args.rounds, args.counted)
        else:
            bench.start_up([peer for peer in (OWN, *peers) if peer.start_up], args.rounds)


@contextmanager
def alone(work):
    """Hold the folder against a second run, which would disturb this one's figures and lose its results."""
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another run measures in {work}: wait for it, or give another --work") from None
        yield


class Bench:
    """Makes the runs that the results do not have yet."""

    def __init__(self, photos, work, environment):
        self.photos, self.work, self.environment = photos, work, environment
        self.results = Results(work / "results.json")
        self.results.facts |= machine() | description(photos)

    def throughput(self, peers, tasks, rounds, counted):
        folder = long_folder(self.photos, self.work, (WARM + counted) * tasks[0].batch_size)
        peers = self.prepared(peers, folder)
        for round_number in range(rounds):
            for task in tasks:
                for peer in peers:
                    if task.name in peer.refuses:
                        continue
                    keys = {"kind": "throughput", "task": task.name, "round": round_number}
                    for run in ({"peer": OWN.name, "beside": peer.name}, {"peer": peer.name}):
                        self.measure(keys | run, folder, WARM, counted, RUN_S)

    def start_up(self, peers, rounds):
        folder = million_folder(self.work)
        peers = self.prepared(peers, folder)
        look_at_all(folder)
        for round_number in range(rounds):
            for peer in peers:
                task = next(name for name in TASKS if name not in peer.refuses)
                keys = {"kind": "start-up", "round": round_number, "peer": peer.name, "task": task}
                self.measure(keys, folder, 1, START_UP_BATCHES - 1, START_UP_S)

    def prepared(self, peers, folder):
        """Convert the folder into each peer's form, before anything is timed; leave out the peers where that fails."""
        for peer in peers:
            out = self.source(peer, folder)
            keys = {"kind": "prepare", "peer": peer.name, "dataset": folder.name}
            if peer.form is not None and not (out.exists() and self.results.done(**keys)):
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                self.keep(keys, peer, ["prepare", peer.name, folder, out], PREPARE_S)
        os.sync()  # or the kernel writes it back while something is timed
        failed = {run["peer"] for run in self.results.find(kind="prepare", dataset=folder.name) if "failed" in run}
        return [peer for peer in peers if peer.name not in failed]

    def source(self, peer, folder):
        return folder if peer.form is None else self.work / f"{folder.name}-{peer.name}"

    def measure(self, keys, folder, warm, counted, timeout_s):
        peer = BY_NAME[keys["peer"]]
        if not self.results.done(**keys):
            window = ["--warm", warm, "--counted", counted]
            arguments = ["run", peer.name, keys["task"], self.source(peer, folder), *window]
            self.keep(keys, peer, arguments, timeout_s)

    def keep(self, keys, peer, arguments, timeout_s):
        """Run measure.py and keep its figures, or the reason why there are none."""
        try:
            figures = launch(self.python(peer), arguments, WORKERS, timeout_s)
            self.results.facts.setdefault("versions", {}).update(figures.pop("versions"))
            figures = {name: rounded(value) for name, value in figures.items()}
        except FailedError as error:
            figures = {"failed": str(error)}
        self.results.add(keys, figures)
        print(*keys.values(), *(f"{name} {value}" for name, value in figures.items()), flush=True)

    def python(self, peer):
        folder = self.environment if peer.environment == "main" else f"{self.environment}-{peer.environment}"
        return Path(folder) / "bin" / "python"


def look_at_all(folder):
    """Have the entries of all files in the kernel's cache, for the first who lists them as for the last."""
    for path, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(path, name))


def rounded(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


def description(photos):
    sizes = [path.stat().st_size for path in originals(photos)]
    return {"photos": len(sizes), "bytes_a_photo": round(sum(sizes) / len(sizes))}


def machine():
    found = environment()
    return {name: getattr(found, name) for name in ("date", "cpu", "cores", "system", "python")}


if __name__ == "__main__":
    main()
