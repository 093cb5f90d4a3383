"""Published training recipes beside torchvision v2, DALI and albumentations: one table a recipe.

    python benchmarks/recipes.py [PHOTOS] --environment DIR [--rows jitter simclr …] [--peers dali …] [--rounds 3]
                                 [--batch-size 256] [--share 1.0]

PHOTOS: class folders of JPEGs as make_photos.py writes them, default .cache/photos. DIR: the peers' environment as
peers/install.sh makes it; Headrace runs in the Python that runs this script. Each run is a process of its own on two
cores, with two threads or two workers (peers/loaders/recipe_*.py); 6 batches are dropped, then as many counted as the
row says times --share. Rounds are interleaved: in each, row by row, Headrace and then every peer. Figures are medians;
"Headrace is" is the median over the rounds of its images/s by the loader's of that round.

Some rows have more of our own beside: mixing the same recipe without it (CPU time), and DINO its ten crops one a pass.
All runs are kept in WORK/recipes.json until the next call.
"""

import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import arguments, head, row

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from dataset import long_folder, pairs_folder
from figures import figures
from launch import FailedError, launch
from registry import OWN_RECIPES, RECIPE_PEERS
from results import Results
from run import alone, description, machine, rounded
from task import AUGMENTED, TASKS, WORKERS

WARM, RUN_S = 6, 900
OWN = OWN_RECIPES.name


@dataclass(frozen=True)
class Recipe:
    """One recipe: what it asks for, and of the best peer's images/s how many times it should reach."""

    title: str
    task: str
    at_least: float | None = None
    counted: int = 24
    own: tuple[str, ...] = ()

    @property
    def tasks(self):
        return (self.task, *self.own)


CROP, FLOATS = "RandomResizedCrop + flip", {"own": ("train-float32",)}
ROWS = {
    "bare": Recipe(f"{CROP}, uint8", "train-uint8"),
    "jitter": Recipe(f"{CROP} + ColorJitter(0.4, 0.4, 0.4, 0.1), uint8", "jitter-uint8", 5.0),
    "randaugment": Recipe(
        f"{CROP} + RandAugment(2, 9) + RandomErasing(0.25), normalised float32", "randaugment-float32", 5.0
    ),
    "simclr": Recipe("SimCLR: two views (jitter 0.8, grey 0.2, blur 0.5), uint8", "simclr-uint8", 6.0, 12),
    "dino": Recipe(
        "DINO: 2 x 224 + 8 x 96 with its augmentations, uint8", "dino-uint8", 6.0, 6,
        own=("dino-global-uint8", "dino-local-uint8"),
    ),
    "segment": Recipe(
        "Scale, crop to 512, flip, photometric distortion; image + mask, in batches of 32", "segment-uint8", 5.0
    ),
    "mixup": Recipe(f"{CROP} + MixUp, normalised float32", "mixup-float32", **FLOATS),
    "cutmix": Recipe(f"{CROP} + CutMix, normalised float32", "cutmix-float32", **FLOATS),
}  # fmt: skip


def main():
    names = [peer.name for peer in RECIPE_PEERS]
    args = arguments(
        __doc__, "photos?", environment={"type": Path, "help": "of the peers; without it, Headrace alone"},
        work=Path(".cache/peers-work"), rows={"nargs": "+", "choices": ROWS, "default": list(ROWS)},
        peers={"nargs": "*", "choices": names, "default": names}, rounds=3, batch_size=256,
        share={"type": float, "default": 1.0, "help": "of the batches counted: less for a look"},
    )  # fmt: skip
    args.photos = args.photos or Path(".cache/photos")
    with alone(args.work):
        bench = Bench(args)
        for number in range(args.rounds):
            for name in args.rows:
                bench.round(ROWS[name], number)
        print("\n".join(bench.report()))


class Bench:
    """Runs each loader of a row in turn, and tells the medians."""

    def __init__(self, args):
        self.args, self.rows = args, [ROWS[name] for name in args.rows]
        (args.work / "recipes.json").unlink(missing_ok=True)
        self.results = Results(args.work / "recipes.json")
        self.results.facts |= machine() | description(args.photos)
        self.peers = [] if args.environment is None else [peer for peer in RECIPE_PEERS if peer.name in args.peers]

    def round(self, recipe, number):
        for task in recipe.tasks:
            self.measure(OWN_RECIPES, sys.executable, recipe, task, number)
        for peer in self.peers:
            if recipe.task not in peer.refuses:
                self.measure(peer, self.args.environment / "bin" / "python", recipe, recipe.task, number)

    def measure(self, peer, python, recipe, task, number):
        counted = max(2, round(recipe.counted * self.args.share))
        size = min(self.args.batch_size, (TASKS | AUGMENTED)[task].batch_size)
        window = ["--warm", WARM, "--counted", counted, "--batch-size", size]
        keys = {"peer": peer.name, "row": recipe.task, "task": task, "round": number}
        try:
            source = self.source(task, (WARM + recipe.counted) * size)
            found = launch(str(python), ["run", peer.module, task, source, *window], WORKERS, RUN_S)
            self.results.facts.setdefault("versions", {}).update(found.pop("versions"))
        except FailedError as error:
            found = {"failed": str(error)}
        self.results.add(keys, found)
        print(*keys.values(), *(f"{key} {rounded(value)}" for key, value in found.items()), file=sys.stderr, flush=True)

    def source(self, task, count):
        if task.startswith("segment"):
            return pairs_folder(self.args.photos, self.args.work, count) / "images"
        return long_folder(self.args.photos, self.args.work, count)

    def report(self):
        facts = self.results.facts
        versions = (f"{package} {version or 'from source'}" for package, version in facts.get("versions", {}).items())
        where = f"{facts['date'][:10]}: {facts['cores']} cores, {facts['cpu']}, Python {facts['python']}; "
        yield where + ", ".join(versions)
        photographs = f"{facts['photos']:,} photographs of {facts['bytes_a_photo']:,} bytes"
        yield f"{photographs}; medians of {self.args.rounds} rounds"
        for recipe in self.rows:
            yield from ("", f"### {recipe.title}", "")
            yield from self.table(recipe)
            yield from (f"\n{verdict}" for verdict in self.verdicts(recipe))
        yield from ("", "What each peer's own pixels are:")
        for peer in (OWN_RECIPES, *self.peers):
            yield f"- **{peer.name}**: {peer.differs}"

    def table(self, recipe):
        yield head("loader", "images/s", "CPU ms an image", "first batch", "Headrace is")
        reasons = []
        sides = [*((OWN, task) for task in recipe.tasks), *((peer.name, recipe.task) for peer in self.peers)]
        for name, task in sides:
            found = figures(self.results, name, row=recipe.task, task=task)
            if found is None:
                reasons += [f"- {name}: {self.reason(name, recipe, task)}"]
                continue
            ratio = self.ratio(recipe, task, [name]) if (name, task) != sides[0] else None
            yield row(
                name if task == recipe.task else f"{name}, {task}", f"{found['images_per_s']:,.0f}",
                f"{found['cpu_ms_per_image']:.2f}", f"{found['first_batch_s']:.2f} s",
                "" if ratio is None else f"{ratio:.2f} ×",
            )  # fmt: skip
        yield from ["", *reasons] if reasons else []

    def reason(self, name, recipe, task):
        refused = {peer.name: peer.refuses.get(recipe.task) for peer in RECIPE_PEERS}.get(name)
        runs = self.results.find(peer=name, row=recipe.task, task=task)
        failed = [run["failed"] for run in runs if "failed" in run]
        return refused if refused is not None else f"failed: {failed[-1]}" if failed else "not run"

    def ratio(self, recipe, task, names, figure="images_per_s"):
        """Return our figure by the best of `names` in the same round; the median of the rounds."""
        rounds = []
        for number in range(self.args.rounds):
            keys = {"row": recipe.task, "round": number}
            own = figures(self.results, OWN, task=recipe.task, **keys)
            rivals = [figures(self.results, name, task=task, **keys) for name in names]
            best = [rival[figure] for rival in rivals if rival is not None]
            if own is not None and best:
                rounds.append(own[figure] / max(best))
        return statistics.median(rounds) if rounds else None

    def verdicts(self, recipe):
        best = self.ratio(recipe, recipe.task, [peer.name for peer in self.peers])
        if best is not None:
            asked = "" if recipe.at_least is None else f"; {recipe.at_least:g} × is asked for"
            yield f"{best:.2f} × the best peer of each round{asked}."
        if "train-float32" in recipe.own:
            share = self.ratio(recipe, "train-float32", [OWN], "cpu_ms_per_image")
            if share is not None:
                yield f"{share - 1:+.1%} of the CPU time without it; at most 10 % is asked for."
        rates = [figures(self.results, OWN, row=recipe.task, task=task) for task in recipe.tasks]
        if "dino-local-uint8" in recipe.own and None not in rates:
            dino, first, second = (rate["images_per_s"] for rate in rates)
            several = dino * (2 / first + 8 / second)
            yield f"{several:.2f} × ten crops one a pass (2 global, 8 local); 1.5 × is asked for."


if __name__ == "__main__":
    main()
