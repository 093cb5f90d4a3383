"""How full are packed rows, how fast are they planned, and what does the plan take of memory?

    python benchmarks/packing.py [--sequences 1000000] [--rows 8] [--rounds 5]
    python benchmarks/packing.py --sequences 10000000 --only documents

Lengths are log-normal, but for the last case, in which nothing can help. Of each distribution:

`used`      share of all rows' tokens that belong to a sequence. Beside it: `in order`, which opens a row whenever the
            next sequence does not fit (what a stream can do), and `best fit`, best-fit decreasing one sequence after
            another. Both of at most 200,000 sequences; with as many, ours is `used, same`
`planned`   million sequences a second, CPU time of one thread, median of the rounds: from an array of lengths to a
            plan (`plan`), of batches of `--rows` rows (`batches`), and of both together for a whole epoch (`both`)
`bytes`     of the plan's arrays, a sequence
`select us` to find one sequence of a class by rank and select in two-byte codes (CodedMembers), which the plan does not
            use; beside the plan's own way, in a table of four bytes a sequence
"""

from __future__ import annotations

import argparse
import statistics
import time
from bisect import bisect_left, insort
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headrace.plan.best_fit import SequencesByLength
from headrace.plan.bucket_members import CodedMembers, blank_codes
from headrace.plan.packed_plan import PackedPlan

Lengths = NDArray[np.int32]

COMPARED = 200_000
BATCHES = 2000
SELECTED = 2000


def log_normal(mean: float, sigma: float) -> Callable[[np.random.Generator, int], Lengths]:
    """Lengths of this mean; `sigma` is that of their logarithm."""
    middle = np.log(mean) - sigma**2 / 2
    return lambda rng, count: rng.lognormal(middle, sigma, count).round().clip(1).astype(np.int32)


CASES: dict[str, tuple[int, Callable[[np.random.Generator, int], Lengths]]] = {
    "documents": (2048, log_normal(400, 0.9)),
    "chats": (4096, log_normal(600, 1.1)),
    "sentences": (2048, log_normal(200, 0.5)),
    "captions": (512, log_normal(20, 0.5)),
    "books": (131_072, log_normal(6000, 1.5)),
    "above half": (2048, lambda rng, count: rng.integers(1025, 1300, count, np.int32)),
}
"""Tokens of a row, and lengths."""


def in_order(lengths: Lengths, row: int) -> int:
    """Rows of a stream."""
    rows, room = 0, 0
    for length in np.minimum(lengths, row).tolist():
        if length > room:
            rows, room = rows + 1, row
        room -= length
    return rows


def best_fit_decreasing(lengths: Lengths, row: int) -> int:
    """Rows, one sequence after another."""
    rooms: list[int] = []
    rows = 0
    for length in np.sort(np.minimum(lengths, row))[::-1].tolist():
        at = bisect_left(rooms, length)
        if at < len(rooms):
            room = rooms.pop(at)
        else:
            rows, room = rows + 1, row
        if room > length:
            insort(rooms, room - length)
    return rows


def median_s(run: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def make(lengths: Lengths, row: int, rows: int) -> PackedPlan:
    plan = PackedPlan(sequences=SequencesByLength.of(lengths, row), row=row, batch_size=rows)
    assert plan.steps
    return plan


def table_bytes(plan: PackedPlan) -> int:
    arrays = [*vars(plan.order).values(), *vars(plan.patterns).values()]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def compare(lengths: Lengths, row: int, rows: int) -> str:
    part = lengths[:COMPARED]
    tokens = int(np.minimum(part, row).sum())
    counts = [in_order(part, row), best_fit_decreasing(part, row), make(part, row, rows).rows]
    shares = [f"{tokens / (count * row):8.2%}" for count in counts]
    return f"in order {shares[0]}   best fit {shares[1]}   used, same {shares[2]}"


def speeds(lengths: Lengths, row: int, rows: int, rounds: int) -> str:
    plan = make(lengths, row, rows)
    steps = range(min(BATCHES, plan.steps))
    planned = sum(len(plan.batch(1, step).samples) for step in steps)
    plan_s = median_s(lambda: make(lengths, row, rows), rounds) / len(lengths)
    batch_s = median_s(lambda: [plan.batch(1, step) for step in steps], rounds) / planned
    found = (1 / each_s / 1e6 for each_s in (plan_s, batch_s, plan_s + batch_s))
    figures = zip(("plan", "batches", "both"), found, strict=True)
    words = "   ".join(f"{name} {figure:6.2f}" for name, figure in figures)
    return f"planned, million/s: {words}   ({planned / len(steps):.0f} sequences a batch)"


def selects(lengths: Lengths, row: int, rounds: int) -> str:
    order = SequencesByLength.of(lengths, row)
    codes = blank_codes(len(lengths), len(order.sizes))
    codes.reshape(-1)[: len(lengths)] = np.searchsorted(order.sizes, np.clip(lengths, 1, row))
    members = CodedMembers.of(codes, len(order.sizes))
    largest = int(order.counts.argmax())
    wanted = np.arange(SELECTED) % int(order.counts[largest])
    begin = int(order.offsets[largest])
    by_rank = median_s(lambda: members.select(largest, wanted), rounds)
    by_table = median_s(lambda: order.samples[begin + wanted], rounds)
    return f"select us: codes {by_rank / SELECTED * 1e6:.2f}   table {by_table / SELECTED * 1e6:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=CASES)
    given = parser.parse_args()
    for name, (row, draw) in CASES.items():
        if given.only not in (None, name):
            continue
        lengths = draw(np.random.default_rng(0), given.sequences)
        plan = make(lengths, row, given.rows)
        print(f"{name}: {given.sequences:,} sequences of {lengths.mean():.0f} tokens in rows of {row}")
        print(f"  used {plan.used:8.2%}   {compare(lengths, row, given.rows)}")
        print(f"  {speeds(lengths, row, given.rows, given.rounds)}")
        print(f"  bytes {table_bytes(plan) / len(lengths):.2f}   classes {len(plan.order.sizes)}", end="   ")
        print(f"patterns {len(plan.patterns)}   {selects(lengths, row, given.rounds)}", flush=True)


if __name__ == "__main__":
    main()
