"""Does a Loader find its threads and prefetch by itself, how soon, and does it stay there?

    python benchmarks/autotune.py PHOTOS [--part free training change] [--seconds 30] [--rounds 3] [--batch-size 64]

Photographs through RandomResizedCrop(224), from the worst start: 1 thread, prefetch 1. Every fixed setting of a grid
(threads from 1 to the cores and one more, prefetch 1, 2, 4, 8) runs beside it, in rounds that are interleaved.

    free      a consumer that does nothing: images a second, second by second; the time until a whole second reached
              95 % of the best fixed setting's median; and the rate from 10 s on beside it (its worst 5 s too)
    training  a consumer that keeps one core busy for --step-ms a step: its rate, and how much longer its step is than
              with the batch at hand
    change    training's step sleeps in the first half, as beside a GPU, and computes in the second: how long the feed
              takes to give the core back, and the second half's rate beside the best fixed setting's

The fixed settings run for --fixed-seconds a round each; half of their spread over the rounds is printed, which says
whether others use the machine too. So that this matters little, the loader that has tuned itself and the best fixed
setting take turns at the end: "in turns" is the ratio of their medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import headrace as hr
from headrace.loader.autotuning.observation import Setting
from headrace.system.resources import available_cores
from headrace.tools.bench.comparison import environment

PREFETCHES = (1, 2, 4, 8)
WORST = Setting(1, 1)
SETTLED_S, NEAR = 10.0, 0.95
WARM_UP_S = 1.0
TURNS, TURN_S = 5, 4.0
SAMPLES = 1_000_000
"""An epoch is longer than any run: the photographs are repeated."""

Work = Callable[[float], None]
"""What the consumer does with a batch, given the seconds since it began."""


@dataclass
class Run:
    """`came` are the moments at which batches came, in seconds since the first was asked for; `settings` what was set
    from which moment on."""

    batch_size: int
    came: list[float] = field(default_factory=list)
    settings: list[tuple[float, Setting]] = field(default_factory=list)

    def rate(self, since_s: float, until_s: float = float("inf")) -> float:
        """Images a second, from batches that came between these."""
        within = [moment for moment in self.came if since_s <= moment < until_s]
        return self.batch_size * (len(within) - 1) / (within[-1] - within[0]) if len(within) > 1 else 0.0

    def by_second(self) -> list[float]:
        return [self.rate(second, second + 1) for second in range(int(self.came[-1]))]

    @property
    def last(self) -> Setting:
        return self.settings[-1][1]


def run(loader: hr.Loader, work: Work, seconds: float) -> Run:
    found = Run(loader.batch_size)
    began = time.perf_counter()
    batches = iter(loader)
    for _ in batches:
        now = time.perf_counter() - began
        found.came.append(now)
        setting = Setting(loader.threads, loader.prefetch)
        if not found.settings or found.last != setting:
            found.settings.append((now, setting))
        if now > seconds:
            break
        work(now)
    batches.close()
    return found


def tuned(make: Callable[..., hr.Loader]) -> hr.Loader:
    """From the worst start; a public Loader begins with all cores."""
    loader = make()
    loader._feed.tuner.restart(WORST)
    return loader


def settings() -> Iterator[Setting]:
    for threads in range(1, available_cores() + 2):
        for prefetch in PREFETCHES:
            yield Setting(threads, prefetch)


def measure(
    make: Callable[..., hr.Loader], work: Work, args: argparse.Namespace
) -> tuple[list[Run], dict[Setting, list[float]], hr.Loader]:
    """The tuned runs, each fixed setting's rates, and the loader that tuned itself last."""
    runs: list[Run] = []
    rates: dict[Setting, list[float]] = {setting: [] for setting in settings()}
    for _ in range(args.rounds):
        last = tuned(make)
        runs.append(run(last, work, args.seconds))
        for setting, found in rates.items():
            loader = make(threads=setting.threads, prefetch=setting.prefetch)
            found.append(run(loader, work, args.fixed_seconds + WARM_UP_S).rate(WARM_UP_S))
    return runs, rates, last


def print_turns(loader: hr.Loader, fixed: hr.Loader, work: Work) -> None:
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for found, each in zip(rates, (loader, fixed), strict=True):
            found.append(run(each, work, WARM_UP_S + TURN_S).rate(WARM_UP_S))
    mine, best = (statistics.median(found) for found in rates)
    now = f"{loader.threads} threads, prefetch {loader.prefetch}"
    print(f"  in turns: tuned ({now}) {mine:,.0f}, fixed {best:,.0f} images/s: {mine / best:.1%}")


def print_grid(rates: dict[Setting, list[float]]) -> tuple[Setting, float]:
    """The best setting, and its median."""
    medians = {setting: statistics.median(found) for setting, found in rates.items()}
    print("  fixed, images/s" + "".join(f"{f'prefetch {prefetch}':>18}" for prefetch in PREFETCHES))
    for threads in sorted({setting.threads for setting in rates}):
        cells = ""
        for prefetch in PREFETCHES:
            found = rates[Setting(threads, prefetch)]
            if min(found) == 0:
                raise SystemExit(f"expected two batches in --fixed-seconds at {threads} threads; let it run longer")
            spread = (max(found) - min(found)) / statistics.median(found)
            cells += f"{f'{medians[Setting(threads, prefetch)]:,.0f} ±{spread / 2:.0%}':>18}"
        print(f"    {threads} threads      {cells}")
    best = max(medians, key=medians.__getitem__)
    return best, medians[best]


def print_run(found: Run, best: float) -> None:
    by_second = found.by_second()
    print("  tuned, each second: " + " ".join(f"{rate:.0f}" for rate in by_second))
    steps = [f"{at:.1f} s {setting.threads}/{setting.prefetch}" for at, setting in found.settings]
    print("    threads/prefetch: " + ", ".join(steps))
    near = next((second + 1 for second, rate in enumerate(by_second) if rate >= NEAR * best), None)
    settled = found.rate(SETTLED_S)
    worst = min((found.rate(second, second + 5) for second in range(int(SETTLED_S), len(by_second) - 4)), default=0.0)
    print(
        f"    {NEAR:.0%} of the best fixed setting {'never' if near is None else f'within {near} s'}; from "
        f"{SETTLED_S:.0f} s on {settled / best:.1%} of it, in its worst 5 s {worst / best:.1%}"
    )


def burn(seconds: float) -> Work:
    """One core is busy for so long: an amount of arithmetic, whatever it takes beside others."""
    left = np.random.default_rng(0).random((96, 96))
    repeats, began = 0, time.thread_time()
    while time.thread_time() - began < 0.5:
        left @ left
        repeats += 1
    count = max(1, round(repeats * seconds / 0.5))

    def work(now: float) -> None:
        for _ in range(count):
            left @ left

    return work


def free(make: Callable[..., hr.Loader], args: argparse.Namespace) -> None:
    print("\nfree: a consumer that does nothing")
    runs, rates, loader = measure(make, lambda now: None, args)
    best, rate = print_grid(rates)
    print(f"  the best: {best.threads} threads, prefetch {best.prefetch}: {rate:,.0f} images/s")
    for found in runs:
        print_run(found, rate)
    print_turns(loader, make(threads=best.threads, prefetch=best.prefetch), lambda now: None)


def training(make: Callable[..., hr.Loader], args: argparse.Namespace) -> None:
    print(f"\ntraining: a consumer that computes for {args.step_ms:.0f} ms a step on one core")
    work = burn(args.step_ms / 1e3)
    runs, rates, loader = measure(make, work, args)
    best, rate = print_grid(rates)
    print(f"  the best: {best.threads} threads, prefetch {best.prefetch}: {rate:,.0f} images/s")
    alone = statistics.median(seconds_of(work) for _ in range(20))
    print(f"  a step with the batch at hand: {alone * 1e3:.1f} ms; the best: {args.batch_size / rate * 1e3:.1f} ms")
    for found in runs:
        print_run(found, rate)
    print_turns(loader, make(threads=best.threads, prefetch=best.prefetch), work)


def seconds_of(work: Work) -> float:
    began = time.perf_counter()
    work(0.0)
    return time.perf_counter() - began


def change(make: Callable[..., hr.Loader], args: argparse.Namespace) -> None:
    half = args.seconds / 2
    print(f"\nchange: steps that sleep {args.step_ms:.0f} ms, and from {half:.0f} s on compute as long on one core")
    computes = burn(args.step_ms / 1e3)

    def work(now: float) -> None:
        if now >= half:
            computes(now)
        else:
            time.sleep(args.step_ms / 1e3)

    rates: dict[Setting, list[float]] = {setting: [] for setting in settings()}
    runs = []
    for _ in range(args.rounds):
        loader = make()  # with all cores: those are to be given back
        runs.append(run(loader, work, args.seconds))
        for setting, found in rates.items():
            fixed = make(threads=setting.threads, prefetch=setting.prefetch)
            found.append(run(fixed, computes, args.fixed_seconds + WARM_UP_S).rate(WARM_UP_S))
    best, rate = print_grid(rates)
    print(f"  the best while it computes: {best.threads} threads, prefetch {best.prefetch}: {rate:,.0f} images/s")
    cores = available_cores()
    for found in runs:
        given = next((at - half for at, setting in found.settings if at >= half and setting.threads < cores), None)
        before = [setting for at, setting in found.settings if at < half][-1].threads
        when = f"a core given back after {given:.1f} s" if given is not None else "no core given back"
        when = f"one was free already ({before} threads)" if before < cores else when
        print(f"  tuned: {when}; {found.rate(half + 5) / rate:.1%} of the best from 5 s after the change on")
        steps = [f"{at:.1f} s {setting.threads}/{setting.prefetch}" for at, setting in found.settings]
        print("    threads/prefetch: " + ", ".join(steps))


PARTS = {"free": free, "training": training, "change": change}


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    ask.add_argument("--seconds", type=float, default=30.0)
    ask.add_argument("--fixed-seconds", type=float, default=5.0)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--batch-size", type=int, default=64)
    ask.add_argument("--step-ms", type=float, default=60.0)
    args = ask.parse_args()
    here = environment()
    print(f"{here.cpu}, {here.cores} cores, {here.date}; batches of {args.batch_size}, {args.rounds} rounds")
    photos = hr.open(args.photos)
    repeated = photos.select(np.resize(np.arange(len(photos)), SAMPLES))

    def make(threads: int | None = None, prefetch: int | None = None) -> hr.Loader:
        return hr.Loader(
            repeated,
            {"image": hr.Image()},
            view=hr.RandomResizedCrop(224, flip=0.5),
            batch_size=args.batch_size,
            shuffle=True,
            output="numpy",
            threads=threads,
            prefetch=prefetch,
        )

    for part in args.part:
        PARTS[part](make, args)


if __name__ == "__main__":
    main()
