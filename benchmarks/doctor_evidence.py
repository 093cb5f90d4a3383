"""How large is the evidence of a long run on many ranks, and how long does it take to merge, diagnose and render it?

    python benchmarks/doctor_evidence.py [--steps 900] [--ranks 8] [--workers 16]

The evidence is that of made_evidence.py beside this file. Printed are the bytes of the files, by kind of record; the
seconds and the peak memory of reading and merging it, and of diagnosing it; and the same of `headrace`'s whole way from
the evidence of 200 steps of the same ranks and workers to the report, its interpreter's start included.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from made_evidence import make_evidence

SHORT_STEPS = 200


def report(folder: Path, *, is_rendered: bool) -> dict[str, float]:
    """Seconds of each part. Nothing that a report does not need is imported."""
    start = time.perf_counter()
    from headrace.doctor.causes import diagnose
    from headrace.doctor.session.evidence_reader import read_session
    from headrace.doctor.session.model import CommandOutcome

    imported = time.perf_counter()
    outcome = CommandOutcome(command=["train"], status=0, why="finished", duration=1)
    session = read_session(folder, outcome=outcome, mode="observe")
    merged = time.perf_counter()
    diagnosis = diagnose(session)
    diagnosed = time.perf_counter()
    figures = {"import": imported - start, "merge": merged - imported, "diagnose": diagnosed - merged}
    if is_rendered:
        from rich.console import Console

        from headrace.doctor.report import report_view, show

        show(report_view(session, diagnosis), Console(file=io.StringIO()), verbose=True)
        figures["render"] = time.perf_counter() - diagnosed
    used = resource.getrusage(resource.RUSAGE_SELF)
    return figures | {"CPU in all": used.ru_utime + used.ru_stime, "peak MB": used.ru_maxrss / 1024}


def in_a_process_of_its_own(folder: Path, *options: str) -> tuple[float, dict[str, float]]:
    """Seconds from the start of the interpreter to its end, and what `report` gave."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--report", str(folder), *options]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, json.loads(ran.stdout)


def bytes_by_kind(folder: Path) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for path in (folder / "evidence").iterdir():
        for line in path.read_text().splitlines():
            kinds[line[2 : line.index('"', 2)]] += len(line) + 1
    return kinds


def measure(steps: int, ranks: int, workers: int, *options: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_evidence(folder, steps=steps, ranks=ranks, workers=workers)
        kinds = bytes_by_kind(folder)
        print(f"## {steps:,} steps, {ranks} ranks, {workers} workers a rank")
        print(
            f"evidence {kinds.total() / 1e6:.1f} MB: " + ", ".join(f"{k} {n / 1e6:.1f}" for k, n in kinds.most_common())
        )
        whole_s, figures = in_a_process_of_its_own(folder, *options)
        parts = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
        print(f"from the interpreter's start to its end {whole_s:.2f} s: {parts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=900)  # a run is recorded for 1,000
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--render", action="store_true", help=argparse.SUPPRESS)
    known = parser.parse_args()
    if known.report is not None:
        print(json.dumps(report(known.report, is_rendered=known.render)))
        return
    measure(known.steps, known.ranks, known.workers)
    measure(SHORT_STEPS, known.ranks, known.workers, "--render")


if __name__ == "__main__":
    main()
