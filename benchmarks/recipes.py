"""Published training recipes beside torchvision v2, DALI and albumentations: one table a recipe.

    python benchmarks/recipes.py [PHOTOS] --environment DIR [--rows jitter simclr …] [--peers dali …] [--rounds 3]
                                 [--batch-size 256] [--share 1.0] [--before PYTHON]

PHOTOS: class folders of JPEGs as make_photos.py writes them, default .cache/photos. DIR: the peers' environment as
peers/install.sh makes it; Headrace runs in the Python that runs this script. Each run is a process of its own on two
cores, with two threads or two workers (peers/loaders/recipe_*.py); 6 batches are dropped, then as many counted as the
row says times --share. Rounds are interleaved: in each, row by row, Headrace and then every peer. Figures are medians;
"Headrace is" is the median over the rounds of its images/s by the loader's of that round.

Some rows have more of our own beside: mixing the same recipe without it (CPU time), DINO its ten crops one a pass, and
--before, another environment's Python, an earlier version on the bare recipe. All runs are kept in WORK/recipes.json
until the next call.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from dataset import long_folder, pairs_folder
from figures import figures
from launch import FailedError, launch
from registry import OWN_RECIPES, RECIPE_PEERS
from results import Results
from run import alone, description, machine
from task import AUGMENTED, TASKS, WORKERS

WARM, RUN_S = 6, 900
OWN, BEFORE = OWN_RECIPES.name, "before"


@dataclass(frozen=True)
class Row:
    """One recipe: what it asks for, and of the best peer's images/s how many times it should reach."""

    title: str
    task: str
    at_least: float | None = None
    counted: int = 24
    own: tuple[str, ...] = ()

    def tasks(self):
        return (self.task, *self.own)


ROWS = {
    "bare": Row("RandomResizedCrop + flip, uint8", "train-uint8"),
    "jitter": Row("RandomResizedCrop + flip + ColorJitter(0.4, 0.4, 0.4, 0.1), uint8", "jitter-uint8", 5.0),
    "randaugment": Row(
        "RandomResizedCrop + flip + RandAugment(2, 9) + RandomErasing(0.25), normalised float32",
        "randaugment-float32",
        5.0,
    ),
    "simclr": Row("SimCLR: two views (jitter 0.8, grey 0.2, blur 0.5), uint8", "simclr-uint8", 6.0, counted=12),
    "dino": Row(
        "DINO: 2 x 224 + 8 x 96 with its augmentations, uint8",
        "dino-uint8",
        6.0,
        counted=6,
        own=("dino-global-uint8", "dino-local-uint8"),
    ),
    "segment": Row(
        "Scale, crop to 512, flip, photometric distortion; image + mask, in batches of 32", "segment-uint8", 5.0
    ),
    "mixup": Row("RandomResizedCrop + flip + MixUp, normalised float32", "mixup-float32", own=("train-float32",)),
    "cutmix": Row("RandomResizedCrop + flip + CutMix, normalised float32", "cutmix-float32", own=("train-float32",)),
}


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [peer.name for peer in RECIPE_PEERS]
    ask.add_argument("photos", type=Path, nargs="?", default=Path(".cache/photos"))
    ask.add_argument("--environment", type=Path, help="of the peers; without it, Headrace alone")
    ask.add_argument("--work", type=Path, default=Path(".cache/peers-work"))
    ask.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    ask.add_argument("--peers", nargs="*", choices=names, default=names)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--batch-size", type=int, default=256)
    ask.add_argument("--share", type=float, default=1.0, help="of the batches counted: less for a look")
    ask.add_argument("--before", type=Path, help="Python of an environment that holds an earlier version")
    args = ask.parse_args()
    with alone(args.work):
        bench = Bench(args)
        for round_number in range(args.rounds):
            for name in args.rows:
                bench.round(ROWS[name], round_number)
        print("\n".join(bench.report()))


class Bench:
    """Runs each loader of a row in turn, and tells the medians."""

    def __init__(self, args):
        self.args, self.rows = args, [ROWS[name] for name in args.rows]
        (args.work / "recipes.json").unlink(missing_ok=True)
        self.results = Results(args.work / "recipes.json")
        self.results.facts |= machine() | description(args.photos)
        self.peers = [] if args.environment is None else [peer for peer in RECIPE_PEERS if peer.name in args.peers]

    def round(self, row, number):
        for task in row.tasks():
            self.measure(OWN_RECIPES, sys.executable, row, task, number)
        if self.args.before is not None and row.task == "train-uint8":
            self.measure(OWN_RECIPES, self.args.before, row, row.task, number, name=BEFORE)
        for peer in self.peers:
            if row.task not in peer.refuses:
                self.measure(peer, self.args.environment / "bin" / "python", row, row.task, number)

    def measure(self, peer, python, row, task, number, name=None):
        counted = max(2, round(row.counted * self.args.share))
        size = min(self.args.batch_size, (TASKS | AUGMENTED)[task].batch_size)
        window = ["--warm", WARM, "--counted", counted, "--batch-size", size]
        keys = {"peer": name or peer.name, "row": row.task, "task": task, "round": number}
        try:
            source = self.source(task, (WARM + row.counted) * size)
            found = launch(str(python), ["run", peer.module, task, source, *window], WORKERS, RUN_S)
            self.results.facts.setdefault("versions", {}).update(found.pop("versions"))
        except FailedError as error:
            found = {"failed": str(error)}
        self.results.add(keys, found)
        print(*keys.values(), *(f"{key} {short(value)}" for key, value in found.items()), file=sys.stderr, flush=True)

    def source(self, task, count):
        if task.startswith("segment"):
            return pairs_folder(self.args.photos, self.args.work, count) / "images"
        return long_folder(self.args.photos, self.args.work, count)

    def report(self):
        facts = self.results.facts
        yield f"{facts['date'][:10]}: {facts['cores']} cores, {facts['cpu']}, Python {facts['python']}; " + ", ".join(
            f"{package} {version or 'from source'}" for package, version in facts.get("versions", {}).items()
        )
        photos, size = facts["photos"], facts["bytes_a_photo"]
        yield f"{photos:,} photographs of {size:,} bytes; medians of {self.args.rounds} rounds"
        for row in self.rows:
            yield from ("", f"### {row.title}", "")
            yield from self.table(row)
            yield from self.verdict(row)
        yield from ("", "What each peer's own pixels are:")
        for peer in (OWN_RECIPES, *self.peers):
            yield f"- **{peer.name}**: {peer.differs}"

    def table(self, row):
        yield "| loader | images/s | CPU ms an image | first batch | Headrace is |"
        yield "|---|--:|--:|--:|--:|"
        reasons = []
        for name, task in self.sides(row):
            found = figures(self.results, name, row=row.task, task=task)
            if found is None:
                reasons += [f"- {name}: {self.reason(name, row, task)}"]
                continue
            ratio = self.ratio(row, task, [name]) if (name, task) != (OWN, row.task) else None
            yield (
                f"| {name if task == row.task else f'{name}, {task}'} | {found['images_per_s']:,.0f} | "
                f"{found['cpu_ms_per_image']:.2f} | {found['first_batch_s']:.2f} s | "
                f"{'' if ratio is None else f'{ratio:.2f} ×'} |"
            )
        yield from ["", *reasons] if reasons else []

    def sides(self, row):
        before = [BEFORE] if self.args.before is not None and row.task == "train-uint8" else []
        others = [(name, row.task) for name in (*before, *(peer.name for peer in self.peers))]
        return [*((OWN, task) for task in row.tasks()), *others]

    def reason(self, name, row, task):
        refused = {peer.name: peer.refuses.get(row.task) for peer in RECIPE_PEERS}.get(name)
        failed = [run["failed"] for run in self.results.find(peer=name, row=row.task, task=task) if "failed" in run]
        return refused if refused is not None else f"failed: {failed[-1]}" if failed else "not run"

    def ratio(self, row, task, names, figure="images_per_s"):
        """Take our figure by the best of `names` in the same round; the median of the rounds."""
        rounds = []
        for number in range(self.args.rounds):
            keys = {"row": row.task, "round": number}
            own = figures(self.results, OWN, task=row.task, **keys)
            rivals = [figures(self.results, name, task=task, **keys) for name in names]
            best = [rival[figure] for rival in rivals if rival is not None]
            if own is not None and best:
                rounds.append(own[figure] / max(best))
        return statistics.median(rounds) if rounds else None

    def verdict(self, row):
        best = self.ratio(row, row.task, [peer.name for peer in self.peers])
        if best is not None:
            asked = "" if row.at_least is None else f"; {row.at_least:g} × is asked for"
            yield from ("", f"{best:.2f} × the best peer of each round{asked}.")
        if "train-float32" in row.own:
            share = self.ratio(row, "train-float32", [OWN], "cpu_ms_per_image")
            if share is not None:
                yield from ("", f"{share - 1:+.1%} of the CPU time without it; at most 10 % is asked for.")
        if "dino-local-uint8" in row.own and (several := self.singles(row)) is not None:
            yield from ("", f"{several:.2f} × ten crops one a pass (2 global, 8 local); 1.5 × is asked for.")
        if BEFORE in (name for name, _ in self.sides(row)):
            ratio = self.ratio(row, row.task, [BEFORE])
            yield from (
                "",
                "no figure of the version before" if ratio is None else f"{ratio:.3f} × the version before.",
            )

    def singles(self, row):
        """Compare DINO's samples a second with those of ten passes of one crop each."""
        rates = [figures(self.results, OWN, row=row.task, task=task) for task in row.tasks()]
        if None in rates:
            return None
        dino, first, second = (rate["images_per_s"] for rate in rates)
        return dino * (2 / first + 8 / second)


def short(value):
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
