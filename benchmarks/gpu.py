"""Everything that only a CUDA device can show, in under ten minutes, into docs/benchmarks/gpu.md.

    python benchmarks/gpu.py [--page docs/benchmarks/gpu.md] [--photos .cache/photos] [--limit 570] [--only Decoding …]
    python benchmarks/gpu.py --rehearse

`--rehearse` runs what needs no CUDA of it: the order of work on streams by the tests' double, and decoding by
nvImageCodec's CPU backend.

It runs the tests that need CUDA, then the benchmarks of the device: the cast and the H2D copies, ResNet-50 with and
without the loader, mixtures and captions, colour on the device, the simulated wait. Each has a time limit, and all of
them --limit seconds together; what ran out of time, failed or was skipped is in the page with its last words. Without a
CUDA device it prints what it would run, and ends well.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "benchmarks" / "gpu.md"
LIMIT_S = 570.0
DOCTOR = ("--steps", "40", "--")


@dataclass(frozen=True)
class Step:
    """One command, and the most seconds that it may take."""

    title: str
    command: tuple[str, ...]
    limit_s: float

    def __str__(self) -> str:
        words = ("python" if part == sys.executable else part.replace(f"{ROOT}/", "") for part in self.command)
        return " ".join(words)


@dataclass(frozen=True)
class Outcome:
    """What a step printed, and how it ended: "done", "failed" or "out of time"."""

    step: Step
    ended: str
    wall_s: float
    output: str


def _python(title: str, limit_s: float, *arguments: str | Path) -> Step:
    return Step(title, (sys.executable, *map(str, arguments)), limit_s)


def steps(photos: Path) -> list[Step]:
    tests = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.cuda" in path.read_text()]
    made = [] if photos.exists() else [_python("Photographs", 60, HERE / "make_photos.py", photos)]
    training = (sys.executable, HERE / "device_training.py", photos, "--steps", "400")
    return [
        *made,
        _python("Tests that need CUDA", 180, "-m", "pytest", "-m", "cuda", "-p", "no:cacheprovider", *tests),
        _python("Decoding on the device", 100, HERE / "device_decode.py", photos),
        _python("Colour on the device", 60, HERE / "device_colour.py"),
        _python("ResNet-50 with the loader, mixtures, captions", 90, HERE / "device_loader.py", photos),
        *(
            _python(f"{model}, {loader}", 60, HERE / "device_training.py", photos, "--model", model, "--loader", loader)
            for model in ("resnet50", "vit")
            for loader in ("none", "torch", "headrace")
        ),
        _python("A training run under the doctor", 120, "-m", "headrace", "doctor", *DOCTOR, *training),
    ]


def rehearsal(photos: Path) -> list[Step]:
    """Return the steps that run without CUDA."""
    tests = sorted((ROOT / "tests" / "device").glob("test_device_*.py"))
    few = ("--device", "cpu", "--images", "48", "--batch", "16", "--rounds", "1")
    made = [] if photos.exists() else [_python("Photographs", 60, HERE / "make_photos.py", photos)]
    return [
        *made,
        _python("Order of work on streams", 180, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests),
        _python("Decoding by nvImageCodec's CPU backend", 120, HERE / "device_decode.py", photos, *few),
    ]


def run(planned: Sequence[Step], limit_s: float) -> Iterator[Outcome]:
    """Run the steps one after another; those that come after the limit are not begun."""
    end = time.monotonic() + limit_s
    for step in planned:
        start, left = time.monotonic(), end - time.monotonic()
        if left <= 1:
            yield Outcome(step, "out of time", 0.0, "not begun: the steps before it took all of the time")
            continue
        try:
            ran = subprocess.run(
                step.command, cwd=ROOT, timeout=min(step.limit_s, left), check=False, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            ended, output = "done" if ran.returncode == 0 else "failed", ran.stdout
        except subprocess.TimeoutExpired as expired:
            ended, output = "out of time", (expired.stdout or b"").decode(errors="replace")
        yield Outcome(step, ended, time.monotonic() - start, output)


def page(facts: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    lines = ["# On a CUDA device", "", "Written by `make gpu`.", "", *(f"- {fact}" for fact in facts), ""]
    for outcome in outcomes:
        how = "" if outcome.ended == "done" else f" **{outcome.ended.capitalize()}.**"
        lines += [f"## {outcome.step.title}", f"`{outcome.step}`, {outcome.wall_s:.0f} s.{how}", "", "```"]
        lines += [*outcome.output.strip().splitlines()[-(80 if outcome.ended == "done" else 400) :], "```", ""]
    return "\n".join(lines)


def machine() -> list[str]:
    import torch

    properties = torch.cuda.get_device_properties(0)
    device = f"{properties.name}, {properties.total_memory / 1e9:.0f} GB, {torch.cuda.device_count()} of them"
    return [time.strftime("%Y-%m-%d"), device, f"torch {torch.__version__}, CUDA {torch.version.cuda}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--photos", type=Path, default=ROOT / ".cache" / "photos")
    parser.add_argument("--limit", type=float, default=LIMIT_S)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="steps whose titles begin so")
    options = parser.parse_args()
    planned = (rehearsal if options.rehearse else steps)(options.photos.absolute())
    if options.only:
        planned = [step for step in planned if step.title.startswith(("Photographs", *options.only))]
    if options.rehearse:
        outcomes = list(run(planned, options.limit))
        for outcome in outcomes:
            print(f"{outcome.step.title}: {outcome.ended}, {outcome.wall_s:.0f} s\n{outcome.output[-2_000:]}")
        raise SystemExit(any(outcome.ended != "done" for outcome in outcomes))
    if not has_cuda():
        print("torch sees no CUDA device here. With one, this would run")
        for step in planned:
            print(f"  {step}   (at most {step.limit_s:.0f} s)")
        print(f"and write {options.page}")
        return
    outcomes = []
    for outcome in run(planned, options.limit):
        outcomes.append(outcome)
        print(f"{outcome.step.title}: {outcome.ended}, {outcome.wall_s:.0f} s", flush=True)
        options.page.write_text(page(machine(), outcomes))
    print(f"→ {options.page}")
    if any(outcome.ended != "done" for outcome in outcomes):
        raise SystemExit(1)


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
