"""How many instructions does the probe of `headrace doctor --observe` add to a training step?

    python benchmarks/doctor_instructions.py [--steps 2000] [--workers 0 2]

Counted by callgrind in the training process alone, from a step to a later one, so that neither start nor end is in it:
without the probe, while it observes, and after that. A count does not depend on what else the machine does. Under
valgrind all takes some fifty times as long, though, so that what the probe does by the clock (looks at lines, writing
what it holds back) falls on fewer steps: an upper bound. Runs differ by some thousands a step.
"""

from contextlib import nullcontext

import paced_training
from doctor_overhead import FOR_GOOD, probe_attached
from harness import HIDDEN, arguments, callgrind, count_instructions

OBSERVED = {"measured": FOR_GOOD, "let pass": 50}
"""Steps that are observed."""
UNCOUNTED = 100
"""Steps: until then observation has ended, if it does, and all that is made once is there."""


def train(state, workers, steps):
    """Run what is counted, from the end of step UNCOUNTED on."""
    switches = {UNCOUNTED: "on", UNCOUNTED + steps: "off"}

    def after_step(number):
        if number in switches:
            count_instructions(switches[number])

    with nullcontext() if state == "without" else probe_attached(OBSERVED[state]):
        paced_training.train(0, workers, UNCOUNTED + steps, after_step)


def main():
    args = arguments(__doc__, steps=2000, workers=[0, 2], state={"type": str, **HIDDEN})
    if args.state is not None:
        train(args.state, args.workers[0], args.steps)
        return
    for workers in args.workers:
        without, *observed = (
            callgrind(__file__, "--state", state, "--workers", workers, "--steps", args.steps) / args.steps
            for state in ("without", *OBSERVED)
        )
        added = "".join(
            f", {n - without:+,.0f} where it is {state}" for state, n in zip(OBSERVED, observed, strict=True)
        )
        print(f"{workers} workers: {without:,.0f} instructions a step without the probe{added}", flush=True)


if __name__ == "__main__":
    main()
