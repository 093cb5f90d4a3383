"""Does a Loader find its threads and prefetch by itself, how soon, and does it stay there?

    python benchmarks/autotune.py PHOTOS [--part free change] [--seconds 30] [--rounds 3] [--batch-size 64]

Photographs through RandomResizedCrop(224), from the worst start: 1 thread, prefetch 1. Every fixed setting of a grid
(threads from 1 to the cores and one more, prefetch 1, 2, 4, 8) runs beside it, in rounds that are interleaved.

    free      a consumer that does nothing: images a second, second by second; the time until a whole second reached
              95 % of the best fixed setting's median; and the rate from 10 s on beside it (its worst 5 s too)
    change    steps of --step-ms that sleep in the first half, as beside a GPU, and compute on one core in the second:
              how long the feed takes to give the core back, and that half's rate beside the best fixed setting's

The fixed settings run for --fixed-seconds a round each; half of their spread over the rounds is printed, which says
whether others use the machine too. So that this matters little, the loader that has tuned itself and the best fixed
setting take turns at the end of `free`: "in turns" is the ratio of their medians.
"""

import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from harness import arguments, in_turns, machine, medians, repeated

import headrace as hr
from headrace.loader.autotuning.tuner import Setting
from headrace.system.resources import available_cores

PREFETCHES, SETTLED_S, NEAR, WARM_UP_S, TURNS, TURN_S = (1, 2, 4, 8), 10.0, 0.95, 1.0, 5, 4.0
GRID = [Setting(threads, prefetch) for threads in range(1, available_cores() + 2) for prefetch in PREFETCHES]
SAMPLES = 1_000_000
"""An epoch is longer than any run: the photographs are repeated."""


@dataclass
class Run:
    """Seconds at which batches came since the first was asked for, and what was set from which moment on."""

    batch_size: int
    came: list[float] = field(default_factory=list)
    settings: list[tuple[float, Setting]] = field(default_factory=list)

    def rate(self, since_s, until_s=float("inf")):
        """Return images/s, from batches that came between these."""
        within = [moment for moment in self.came if since_s <= moment < until_s]
        return self.batch_size * (len(within) - 1) / (within[-1] - within[0]) if len(within) > 1 else 0.0

    def print_settings(self):
        steps = [f"{at:.1f} s {setting.threads}/{setting.prefetch}" for at, setting in self.settings]
        print("    threads/prefetch: " + ", ".join(steps))


def run(loader, work, seconds):
    """Run a loader whose consumer calls `work` with the seconds since it began."""
    found, began, batches = Run(loader.batch_size), time.perf_counter(), iter(loader)
    for _ in batches:
        now = time.perf_counter() - began
        found.came.append(now)
        setting = Setting(loader.threads, loader.prefetch)
        if not found.settings or found.settings[-1][1] != setting:
            found.settings.append((now, setting))
        if now > seconds:
            break
        work(now)
    batches.close()
    return found


def steady(loader, work, seconds):
    return run(loader, work, WARM_UP_S + seconds).rate(WARM_UP_S)


def measure(make, tuned, work, work_of_grid, args):
    """Return the tuned runs, the best fixed setting and its median, with the grid printed."""

    def fixed(setting):
        return steady(make(threads=setting.threads, prefetch=setting.prefetch), work_of_grid, args.fixed_seconds)

    cases = {setting: partial(fixed, setting) for setting in GRID}
    found = in_turns({None: lambda: run(tuned(), work, args.seconds), **cases}, args.rounds)
    runs, rates = found.pop(None), medians(found)
    print("  fixed, images/s" + "".join(f"{f'prefetch {prefetch}':>18}" for prefetch in PREFETCHES))
    for setting, rounds in found.items():
        if min(rounds) == 0:
            raise SystemExit(f"expected two batches in --fixed-seconds at {setting}; let it run longer")
        start = f"    {setting.threads} threads      " if setting.prefetch == PREFETCHES[0] else ""
        spread = (max(rounds) - min(rounds)) / rates[setting] / 2
        print(f"{start}{f'{rates[setting]:,.0f} ±{spread:.0%}':>18}", end="\n" if setting.prefetch == 8 else "")
    best = max(rates, key=rates.__getitem__)
    print(f"  the best: {best.threads} threads, prefetch {best.prefetch}: {rates[best]:,.0f} images/s")
    return runs, best, rates[best]


def free(make, args):
    def rest(now):
        pass

    def tuned():
        """Start from the worst; a public Loader begins with all cores."""
        loaders.append(make())
        loaders[-1]._feed.tuner.setting = Setting(1, 1)
        return loaders[-1]

    print("\nfree: a consumer that does nothing")
    loaders = []
    runs, best, rate = measure(make, tuned, rest, rest, args)
    for found in runs:
        by_second = [found.rate(second, second + 1) for second in range(int(found.came[-1]))]
        print("  tuned, each second: " + " ".join(f"{each:.0f}" for each in by_second))
        found.print_settings()
        near = next((f"within {at} s" for at, each in enumerate(by_second, 1) if each >= NEAR * rate), "never")
        starts = range(int(SETTLED_S), len(by_second) - 4)
        worst = min((found.rate(second, second + 5) for second in starts), default=0.0)
        print(
            f"    {NEAR:.0%} of the best fixed setting {near}; from {SETTLED_S:.0f} s on "
            f"{found.rate(SETTLED_S) / rate:.1%} of it, in its worst 5 s {worst / rate:.1%}"
        )
    pair = {"tuned": loaders[-1], "fixed": make(threads=best.threads, prefetch=best.prefetch)}
    turns = in_turns({name: partial(steady, loader, rest, TURN_S) for name, loader in pair.items()}, TURNS)
    mine, fixed = medians(turns).values()
    now = f"{loaders[-1].threads} threads, prefetch {loaders[-1].prefetch}"
    print(f"  in turns: tuned ({now}) {mine:,.0f}, fixed {fixed:,.0f} images/s: {mine / fixed:.1%}")


def burn(seconds):
    """Return work that keeps one core busy for so long: an amount of arithmetic, whatever it takes beside others."""
    left, repeats, began = np.random.default_rng(0).random((96, 96)), 0, time.thread_time()
    while time.thread_time() - began < 0.5:
        left @ left
        repeats += 1
    count = max(1, round(repeats * seconds / 0.5))
    return lambda now: [left @ left for _ in range(count)]


def change(make, args):
    half, computes = args.seconds / 2, burn(args.step_ms / 1e3)
    print(f"\nchange: steps that sleep {args.step_ms:.0f} ms, and from {half:.0f} s on compute as long on one core")

    def work(now):
        if now >= half:
            computes(now)
        else:
            time.sleep(args.step_ms / 1e3)

    runs, _, rate = measure(make, make, work, computes, args)  # from all cores: those are to be given back
    cores = available_cores()
    for found in runs:
        given = next((at - half for at, setting in found.settings if at >= half and setting.threads < cores), None)
        before = [setting for at, setting in found.settings if at < half][-1].threads
        when = f"a core given back after {given:.1f} s" if given is not None else "no core given back"
        when = f"one was free already ({before} threads)" if before < cores else when
        print(f"  tuned: {when}; {found.rate(half + 5) / rate:.1%} of the best from 5 s after the change on")
        found.print_settings()


PARTS = {"free": free, "change": change}


def main():
    parts = {"nargs": "+", "choices": PARTS, "default": list(PARTS)}
    args = arguments(
        __doc__, "photos", part=parts, seconds=30.0, fixed_seconds=5.0, rounds=3, batch_size=64, step_ms=60.0
    )
    print(f"{machine()}; batches of {args.batch_size}, {args.rounds} rounds")
    settings = {"batch_size": args.batch_size, "shuffle": True, "output": "numpy"}
    view = hr.RandomResizedCrop(224, flip=0.5)
    make = partial(hr.Loader, repeated(args.photos, SAMPLES), {"image": hr.Image()}, view=view, **settings)
    for part in args.part:
        PARTS[part](make, args)


if __name__ == "__main__":
    main()
