"""How full are packed rows, how fast are they planned, and what does the plan take of memory?

    python benchmarks/packing.py [--sequences 1000000] [--rows 8] [--rounds 5]
    python benchmarks/packing.py --sequences 10000000 --only documents

Lengths are log-normal, but for the last case, in which nothing can help. Of each distribution:

`used`      share of all rows' tokens that belong to a sequence. Beside it: `in order`, which opens a row whenever the
            next sequence does not fit (what a stream can do), of at most 200,000 sequences; with as many, ours is
            `used, same`
`planned`   million sequences a second, CPU time of one thread, median of the rounds: from an array of lengths to a
            plan (`plan`), of batches of `--rows` rows (`batches`), and of both together for a whole epoch (`both`)
`bytes`     of the plan's arrays, a sequence
`ranks`     largest by mean sum of tokens of a step's ranks, the mean of many steps, without exchange between ranks: of
            packed rows, of plain batches of as many sequences, and of these padded to their longest
`select us` to find one sequence of a class by rank and select in two-byte codes (CodedMembers), which the plan does not
            use; beside the plan's own way, in a table of four bytes a sequence
"""

import statistics

import numpy as np
from harness import arguments, cost

from headrace.plan.best_fit import SequencesByLength
from headrace.plan.bucket_members import CodedMembers, blank_codes
from headrace.plan.packed_plan import PackedPlan

COMPARED, BATCHES, SELECTED, STEPS = 200_000, 2000, 2000, 300
PLANS = "packed", "plain", "padded"


def log_normal(mean, sigma):
    """Draw lengths of this mean; `sigma` is that of their logarithm."""
    middle = np.log(mean) - sigma**2 / 2
    return lambda rng, count: rng.lognormal(middle, sigma, count).round().clip(1).astype(np.int32)


def image_text(rng, count):
    """Draw texts with 0 to 8 pictures, each a token for every 28 x 28 pixels, as in a public mixture for chats."""
    pictures = rng.choice([0, 1, 2, 4, 8], count, p=[0.15, 0.65, 0.1, 0.07, 0.03])
    sides = rng.lognormal(np.log(560), 0.45, (2, pictures.sum())).clip(56, 1568) // 28
    sums = np.concatenate([[0], np.cumsum(sides.prod(axis=0))])
    ends = np.cumsum(pictures)
    return (log_normal(250, 1.0)(rng, count) + sums[ends] - sums[ends - pictures]).clip(1, 16_384).astype(np.int32)


CASES = {
    "images and texts": (16_384, image_text),
    "documents": (2048, log_normal(400, 0.9)),
    "chats": (4096, log_normal(600, 1.1)),
    "sentences": (2048, log_normal(200, 0.5)),
    "captions": (512, log_normal(20, 0.5)),
    "books": (131_072, log_normal(6000, 1.5)),
    "above half": (2048, lambda rng, count: rng.integers(1025, 1300, count, np.int32)),
}
"""Tokens of a row, and lengths."""


def in_order(lengths, row):
    """Count the rows of a stream."""
    rows, room = 0, 0
    for length in np.minimum(lengths, row).tolist():
        if length > room:
            rows, room = rows + 1, row
        room -= length
    return rows


def cpu_s(run, rounds):
    return statistics.median(cost(run)[1] for _ in range(rounds))


def make(lengths, row, rows):
    plan = PackedPlan(sequences=SequencesByLength.of(lengths, row), row=row, batch_size=rows)
    assert plan.steps
    return plan


def speeds(lengths, row, rows, rounds):
    plan = make(lengths, row, rows)
    steps = range(min(BATCHES, plan.steps))
    planned = sum(len(plan.batch(1, step).samples) for step in steps)
    plan_s = cpu_s(lambda: make(lengths, row, rows), rounds) / len(lengths)
    batch_s = cpu_s(lambda: [plan.batch(1, step) for step in steps], rounds) / planned
    figures = {"plan": plan_s, "batches": batch_s, "both": plan_s + batch_s}
    words = "   ".join(f"{name} {1 / each_s / 1e6:6.2f}" for name, each_s in figures.items())
    return f"planned, million/s: {words}   ({planned / len(steps):.0f} sequences a batch)"


def imbalances(lengths, row, ranks):
    lengths = np.minimum(lengths, row)
    plan = PackedPlan(sequences=SequencesByLength.of(lengths, row), row=row, batch_size=ranks)
    whole = [plan.batch(0, step) for step in range(min(STEPS, plan.steps - 1))]
    packed, plain, padded = [], [], []
    draw = np.random.default_rng(1)
    for batch in whole:
        rows = batch.rows.of(batch.positions)
        packed.append(np.bincount(rows, lengths[batch.samples], minlength=ranks))
        drawn = draw.choice(lengths, (ranks, max(1, len(batch.samples) // ranks)))
        plain.append(drawn.sum(axis=1))
        padded.append(drawn.max(axis=1) * drawn.shape[1])
    found = (np.mean([sums.max() / sums.mean() for sums in each]) for each in (packed, plain, padded))
    return f"{ranks} ranks: " + "   ".join(f"{name} {each:.3f}" for name, each in zip(PLANS, found, strict=True))


def selects(lengths, row, rounds):
    order = SequencesByLength.of(lengths, row)
    codes = blank_codes(len(lengths), len(order.sizes))
    codes.reshape(-1)[: len(lengths)] = np.searchsorted(order.sizes, np.clip(lengths, 1, row))
    members, largest = CodedMembers.of(codes, len(order.sizes)), int(order.counts.argmax())
    wanted, begin = np.arange(SELECTED) % int(order.counts[largest]), int(order.offsets[largest])
    by_rank = cpu_s(lambda: members.select(largest, wanted), rounds) / SELECTED * 1e6
    by_table = cpu_s(lambda: order.samples[begin + wanted], rounds) / SELECTED * 1e6
    return f"select us: codes {by_rank:.2f}   table {by_table:.3f}"


def main():
    only = {"choices": list(CASES)}
    args = arguments(__doc__, sequences=1_000_000, rows=8, rounds=5, only=only)
    for name, (row, draw) in CASES.items():
        if args.only not in (None, name):
            continue
        lengths = draw(np.random.default_rng(0), args.sequences)
        plan, part = make(lengths, row, args.rows), lengths[:COMPARED]
        tokens = int(np.minimum(part, row).sum())
        stream, same = (tokens / (count * row) for count in (in_order(part, row), make(part, row, args.rows).rows))
        arrays = [*vars(plan.sequences).values(), *vars(plan.patterns).values()]
        size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
        print(f"{name}: {args.sequences:,} sequences of {lengths.mean():.0f} tokens in rows of {row}")
        print(f"  used {plan.used:8.2%}   in order {stream:8.2%}   used, same {same:8.2%}")
        print(f"  {imbalances(lengths, row, 8)}   {imbalances(lengths, row, 64)}")
        print(f"  {speeds(lengths, row, args.rows, args.rounds)}")
        print(f"  bytes {size / len(lengths):.2f}   classes {len(plan.sequences.sizes)}", end="   ")
        print(f"patterns {len(plan.patterns)}   {selects(lengths, row, args.rounds)}", flush=True)


if __name__ == "__main__":
    main()
