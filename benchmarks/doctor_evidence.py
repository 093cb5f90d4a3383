"""How large is the evidence of a long run on many ranks, and how long does it take to merge, diagnose and render it?

    python benchmarks/doctor_evidence.py [--steps 900] [--ranks 8] [--workers 16]

The evidence is that of made_evidence.py beside this file. Printed are the bytes of the files, by kind of record; the
seconds and the peak memory of reading and merging it, and of diagnosing it; and the same of `headrace`'s whole way from
the evidence of 200 steps of the same ranks and workers to the report, its interpreter's start included.
"""

import io
import json
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from harness import HIDDEN, arguments, process_json

SHORT_STEPS = 200


def report(folder, *, is_rendered):
    """Return the seconds of each part. Nothing that a report does not need is imported."""
    start = time.perf_counter()
    from headrace.doctor.causes import diagnose
    from headrace.doctor.session.evidence_reader import read_session
    from headrace.doctor.session.model import CommandOutcome

    imported = time.perf_counter()
    session = read_session(
        folder, outcome=CommandOutcome(command=["train"], status=0, why="finished", duration=1), mode="observe"
    )
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


def measure(steps, ranks, workers, *options):
    from made_evidence import make_evidence

    with tempfile.TemporaryDirectory() as name:
        folder, kinds = Path(name), Counter()
        make_evidence(folder, steps=steps, ranks=ranks, workers=workers)
        for path in (folder / "evidence").iterdir():
            for line in path.read_text().splitlines():
                kinds[line[2 : line.index('"', 2)]] += len(line) + 1
        sizes = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in kinds.most_common())
        print(f"## {steps:,} steps, {ranks} ranks, {workers} workers a rank")
        print(f"evidence {kinds.total() / 1e6:.1f} MB: {sizes}")
        start = time.perf_counter()
        figures = process_json(__file__, "--report", folder, *options)
        whole_s, parts = time.perf_counter() - start, ", ".join(f"{each} {n:.2f}" for each, n in figures.items())
        print(f"from the interpreter's start to its end {whole_s:.2f} s: {parts}", flush=True)


def main():
    hidden = {"type": Path, **HIDDEN}
    args = arguments(__doc__, steps=900, ranks=8, workers=16, report=hidden, render=False)  # 1,000 steps are recorded
    if args.report is not None:
        print(json.dumps(report(args.report, is_rendered=args.render)))
        return
    measure(args.steps, args.ranks, args.workers)
    measure(SHORT_STEPS, args.ranks, args.workers, "--render")


if __name__ == "__main__":
    main()
