"""Arguments, timing in turns, photographs, processes and tables: what the scripts of this folder share.

At the top it imports the standard library alone, so that scripts run in environments of other loaders, too.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HIDDEN = {"help": argparse.SUPPRESS}
HEADRACE = [sys.executable, "-c", "import sys; from headrace.tools.command_line import main; "
            "sys.argv[0] = 'headrace'; main()"]  # fmt: skip
"""Command of `headrace` in this Python, to which its arguments are added."""


def arguments(doc: str | None, *paths: str, **options: Any) -> argparse.Namespace:
    """Parse the command line: paths by position ("photos", or "photos?" for an optional one), then options.

    An option's default gives its type. False is a switch, a list takes several values, a tuple lists the choices with
    the default first, a type has the default None, and a dict has argparse's own arguments.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for path in paths:
        parser.add_argument(path.rstrip("?"), type=Path, nargs="?" if path.endswith("?") else None)
    for name, default in options.items():
        kind = (
            default if isinstance(default, dict)
            else {"action": "store_true"} if default is False
            else {"type": default} if isinstance(default, type)
            else {"type": type(default[0]), "nargs": "+", "default": default} if isinstance(default, list)
            else {"choices": default, "default": default[0]} if isinstance(default, tuple)
            else {"type": type(default), "default": default}
        )  # fmt: skip
        parser.add_argument(f"--{name.replace('_', '-')}", **kind)
    return parser.parse_args()


def machine() -> str:
    """Describe the machine in one line."""
    from headrace import _core
    from headrace.tools.bench.comparison import environment

    here = environment()
    versions = ", ".join(f"{name} {version}" for name, version in here.packages.items())
    about = f"{here.cpu}, {here.cores} cores, {_core.best_level()}, load {os.getloadavg()[0]:.1f}, {here.date[:10]}"
    return f"{about}; Python {here.python}, {versions}"


def seconds(work: Callable[[], object]) -> float:
    """Return the wall seconds of a call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and the CPU seconds of a call, of all threads of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def exhaust(batches: Iterable[Any]) -> None:
    """Take all batches and drop them."""
    deque(batches, maxlen=0)


def epoch(loader: Iterable[Any]) -> tuple[float, float]:
    """Return the wall and the CPU seconds of an epoch."""
    return cost(lambda: exhaust(loader))


def in_turns(cases: Mapping[Any, Callable[[], Any]], rounds: int, *, warm_up: int = 0) -> dict[Any, list[Any]]:
    """Run every case once a round, and return what each gave; rounds of the warm-up are dropped."""
    found: dict[Any, list[Any]] = {name: [] for name in cases}
    for number in range(warm_up + rounds):
        for name, work in cases.items():
            value = work()
            if number >= warm_up:
                found[name].append(value)
    return found


def medians(found: Mapping[Any, Sequence[Any]]) -> dict[Any, Any]:
    """Return the median of each case's rounds: of numbers, or of each column of tuples."""
    return {
        name: [statistics.median(column) for column in zip(*rounds, strict=True)]
        if isinstance(rounds[0], tuple)
        else statistics.median(rounds)
        for name, rounds in found.items()
    }


def median_s(cases: Mapping[Any, Callable[[], object]], rounds: int, *, warm_up: int = 0) -> dict[Any, float]:
    """Return the median wall seconds of each case, in turns."""
    timed = {name: lambda work=work: seconds(work) for name, work in cases.items()}
    return medians(in_turns(timed, rounds, warm_up=warm_up))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def finish_device(device: str) -> None:
    """Wait until the device has done all its work."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def require_device(device: str) -> None:
    """End the script if it asks for a CUDA device that is not there."""
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("skipped: torch sees no CUDA device here, so there is nothing to measure")


def jpegs(folder: Path, most: int | None = None, *, more_than: int = 0) -> list[Path]:
    """List the JPEGs below a folder, at most so many."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))[:most]
    if len(found) <= more_than:
        raise SystemExit(f"expected more than {more_than} JPEGs below {folder}, got {len(found)}")
    return found


def described(files: Sequence[Path]) -> str:
    return f"{len(files):,} files, {sum(path.stat().st_size for path in files) / len(files) / 1000:.0f} kB each"


def repeated(photos: Path, count: int) -> Any:
    """Open a folder as a dataset of so many samples: the photographs again and again."""
    import headrace as hr

    data = hr.open(photos)
    return data.select([number % len(data) for number in range(count)])


def encoded(image: Any, kind: str = "JPEG", **options: Any) -> bytes:
    """Return a Pillow image as the bytes of a file."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
            tar.members.clear()  # or it keeps them all
    return path


def random_window(width: int, height: int, draw: Any) -> tuple[int, int, int, int]:
    """Draw torchvision's RandomResizedCrop: left, top, right, bottom."""
    for _ in range(10):
        area = draw.uniform(0.08, 1) * width * height
        aspect = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = draw.randint(0, width - w), draw.randint(0, height - h)
            return left, top, left + w, top + h
    return 0, 0, width, height


class Mapped:
    """Map-style dataset for a DataLoader: items, and a function that turns one into a sample."""

    def __init__(self, items: Sequence[Any], get: Callable[[Any], Any]) -> None:
        self.items, self.get = items, get

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.get(self.items[index])


def process_json(*command: Any, **environment: str) -> Any:
    """Run Python with these arguments and this harness, and return the JSON of its last line."""
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    command = [sys.executable, *map(str, command)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=settings)
    return json.loads(ran.stdout.splitlines()[-1])


def memory_mb(*names: str) -> list[float]:
    """Read figures of this process's /proc/self/status and smaps_rollup, in MB."""
    found: dict[str, float] = {}
    for file in ("status", "smaps_rollup"):
        if not found.keys() >= set(names):  # reading the second takes long in a large process
            lines = re.findall(r"^(\w+):\s+(\d+) kB$", Path(f"/proc/self/{file}").read_text(), re.MULTILINE)
            found |= {name: int(size) / 1e3 for name, size in lines}
    return [found[name] for name in names]


def callgrind(*command: Any) -> int:
    """Run Python under callgrind, and return the instructions that its main process counted."""
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null", sys.executable]
    ran = subprocess.run([*valgrind, *map(str, command)], check=True, capture_output=True, text=True)
    main_process = re.findall(r"==(\d+)== Callgrind", ran.stderr)[0]
    return int(re.findall(rf"=={main_process}== Collected : (\d+)", ran.stderr)[0])


def count_instructions(switch: str) -> None:
    """Switch callgrind's count in this process "on" or "off"."""
    subprocess.run(["callgrind_control", f"--instr={switch}", str(os.getpid())], check=True, capture_output=True)


def row(*cells: object) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*cells: str) -> str:
    """Return the head of a Markdown table, with figures to the right."""
    return f"{row(*cells)}\n|---|{'--:|' * (len(cells) - 1)}"


def print_quartiles(found: Mapping[str, Sequence[float]], unit: str, scale: float = 1, *, more_is_better: bool) -> None:
    """Print the median and quartiles of each case, and how many times better the first is."""
    first = next(iter(found))
    for name, values in found.items():
        low, median, high = (scale * value for value in statistics.quantiles(values, n=4))
        pair = (found[first], values) if more_is_better else (values, found[first])
        spread = f"(quartiles {low:,.1f} to {high:,.1f})"
        print(f"  {name:26}{median:9,.1f} {unit:9} {spread}   {first} is {ratio(*pair):5.2f} x")


def cycled(items: Sequence[Any], count: int) -> list[Any]:
    return list(itertools.islice(itertools.cycle(items), count))
